"""Plays a story about a transactional id and writes down what can be seen: replies, records in the journal, markers.

A story is a text of blocks as in group_story.py. The commands:

    init NAME [timeout=60s] [goes-on]         `goes-on`: the producer names the id and epoch that it has
    add NAME topic-partition ...              options of every request: version=2 for KIP-890, epoch=N producer=N to lie
    verify NAME topic-partition ...
    commit NAME  |  abort NAME
    show
    markers-stuck, markers-go                 partitions cannot be reached, then they can
    exhaust                                   the journal has the id with the last epoch but one
    advance 10s                               let time pass (s, m, h, d)
    restart                                   another broker takes the partition over: read it back from the journal
    out-of-touch, in-touch                    the broker cannot know whether it was replaced, then it can
    lose-next-write, hold-commits, release-commits

There is one transactional id, `x`. NAME is a process: it remembers the producer id and epoch that it was given last.
Producer ids are 1000, 1001 and so on.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence

from headrace.coordinators.transactions.commands import (
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    ProducerReply,
    VerifyPartitions,
)
from headrace.coordinators.transactions.coordinator import TransactionCoordinator
from headrace.coordinators.transactions.markers import Mark
from headrace.coordinators.transactions.records import read_transaction, transaction_record
from headrace.coordinators.transactions.settings import TransactionSettings
from headrace.coordinators.transactions.transaction import MAX_EPOCH, Transaction
from headrace.model.image import TRANSACTION_STATE_TOPIC
from headrace.wire.errors import ErrorCode, KafkaError
from sim.loop import SimClock
from tests.scenarios.group_story import seconds
from tests.unit.coordinators.stage import Cluster, MemoryJournal

ID = "x"
SETTLE_S = 0.001


class Partitions:
    """Take markers, unless they cannot be reached."""

    def __init__(self, see: Callable[[str], None]) -> None:
        self._see = see
        self._stuck: list[tuple[Sequence[Mark], asyncio.Future[None]]] | None = None

    def write(self, marks: Sequence[Mark]) -> asyncio.Future[None]:
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._stuck is None:
            self._take(marks, written)
        else:
            self._stuck.append((marks, written))
        return written

    def _take(self, marks: Sequence[Mark], written: asyncio.Future[None]) -> None:
        for mark in marks:
            end = mark.end
            what = "commit" if end.commit else "abort"
            strict = ", above the records'" if end.strict else ""
            producer = f"{end.producer_id} epoch {end.producer_epoch}{strict}"
            self._see(f"{mark.topic}-{mark.partition}: {what} of {producer}, coordinator epoch {end.coordinator_epoch}")
        written.set_result(None)

    def stick(self) -> None:
        self._stuck = []

    def go(self) -> None:
        stuck, self._stuck = self._stuck or [], None
        for marks, written in stuck:
            self._take(marks, written)


class Process:
    def __init__(self) -> None:
        self.producer_id, self.epoch = -1, -1


class TransactionStory:
    def __init__(self) -> None:
        self._journal = MemoryJournal()
        self._cluster = Cluster({TRANSACTION_STATE_TOPIC: {}})
        self._partitions = Partitions(self._see)
        self._processes: dict[str, Process] = {}
        self._ids = itertools.count(1000)
        self._seen: list[str] = []
        self._shown_records = 0
        self._epoch = 0
        self._coordinator: TransactionCoordinator | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def play(self, lines: list[str]) -> list[str]:
        """Carries out one block and returns what was seen."""
        self._seen = []
        for line in lines:
            name, *words = line.split()
            if self._coordinator is None:
                await self._start()
            command: Callable[[list[str]], Awaitable[None]] = getattr(self, "_do_" + name.replace("-", "_"))
            await command(words)
            await self._settle()
        return self._seen or ["nothing"]

    async def end(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- the coordinator --------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        async def fresh_id() -> int:
            return next(self._ids)

        self._coordinator = TransactionCoordinator(
            self._journal, SimClock(), self._cluster, TransactionSettings(), self._partitions, fresh_id
        )
        self._run(self._coordinator.run())
        for partition in range(4):
            self._coordinator.on_leadership(partition, True, self._epoch)
        await self._settle()

    async def _settle(self) -> None:
        await asyncio.sleep(SETTLE_S)
        self._show_records()

    def _run(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _ask(self, who: str, answered: Awaitable[object], told: Callable[[object], str]) -> None:
        self._show_records()

        async def wait() -> None:
            try:
                reply = await answered
                self._show_records()
                self._see(f"{who}: {told(reply)}")
            except KafkaError as error:
                self._see(f"{who}: {error.code.name.upper()}")

        self._run(wait())

    # --- what is seen -----------------------------------------------------------------------------------------------

    def _see(self, line: str) -> None:
        self._show_records()
        self._seen.append(line)

    def _show_records(self) -> None:
        written = [record for records in self._journal.written.values() for record in records]
        fresh, self._shown_records = written[self._shown_records :], len(written)
        for _, value in fresh:
            self._seen.append("log: id removed" if value is None else f"log: {shown(read_transaction(value))}")

    # --- requests ---------------------------------------------------------------------------------------------------

    def _asked(self, words: list[str]) -> tuple[str, Process, dict[str, str], list[str]]:
        name, *rest = words
        options = dict(word.split("=") for word in rest if "=" in word)
        return name, self._processes.setdefault(name, Process()), options, [word for word in rest if "=" not in word]

    async def _do_init(self, words: list[str]) -> None:
        name, process, options, rest = self._asked(words)
        known = int(options.get("producer", process.producer_id)), int(options.get("epoch", process.epoch))
        expected = known if "goes-on" in rest else None
        timeout_ms = int(seconds(options.get("timeout", "60s")) * 1000)
        assert self._coordinator is not None
        answered = self._coordinator.settle(InitProducer(ID, timeout_ms, expected))
        self._ask(name, answered, lambda reply: self._told(process, reply))

    def _told(self, process: Process, reply: object) -> str:
        assert isinstance(reply, ProducerReply)
        if reply.error is not ErrorCode.none:
            return reply.error.name.upper()
        process.producer_id, process.epoch = reply.producer_id, reply.epoch
        return f"is producer {reply.producer_id} with epoch {reply.epoch}"

    async def _do_add(self, words: list[str]) -> None:
        name, process, options, rest = self._asked(words)
        epoch, version = int(options.get("epoch", process.epoch)), int(options.get("version", "0"))
        places = frozenset(_place(word) for word in rest)
        assert self._coordinator is not None
        command = AddPartitions(ID, process.producer_id, epoch, places, version)
        self._ask(name, self._coordinator.submit(command), lambda code: f"add {code.name.upper()}")

    async def _do_verify(self, words: list[str]) -> None:
        name, process, options, rest = self._asked(words)
        epoch = int(options.get("epoch", process.epoch))
        command = VerifyPartitions(ID, process.producer_id, epoch, tuple(_place(word) for word in rest))
        assert self._coordinator is not None
        answered = self._coordinator.submit(command)
        self._ask(name, answered, lambda codes: "verified " + " ".join(code.name.upper() for code in codes))

    async def _do_commit(self, words: list[str]) -> None:
        self._end(words, commit=True)

    async def _do_abort(self, words: list[str]) -> None:
        self._end(words, commit=False)

    def _end(self, words: list[str], *, commit: bool) -> None:
        name, process, options, _ = self._asked(words)
        epoch, version = int(options.get("epoch", process.epoch)), int(options.get("version", "0"))
        producer_id = int(options.get("producer", process.producer_id))
        assert self._coordinator is not None
        answered = self._coordinator.settle(EndTransaction(ID, producer_id, epoch, commit, version))
        what = "commit" if commit else "abort"
        self._ask(name, answered, lambda reply: f"{what}: {self._told(process, reply)}")

    async def _do_show(self, words: list[str]) -> None:
        assert self._coordinator is not None
        answered = self._coordinator.submit(DescribeTransaction(ID))
        self._ask(ID, answered, lambda found: shown(found) if isinstance(found, Transaction) else "not known")

    # --- the world --------------------------------------------------------------------------------------------------

    async def _do_markers_stuck(self, words: list[str]) -> None:
        self._partitions.stick()

    async def _do_markers_go(self, words: list[str]) -> None:
        self._partitions.go()

    async def _do_out_of_touch(self, words: list[str]) -> None:
        self._journal.out_of_touch = True

    async def _do_in_touch(self, words: list[str]) -> None:
        self._journal.out_of_touch = False

    async def _do_exhaust(self, words: list[str]) -> None:
        """As if the id had been used 32,765 times."""
        [(partition, records)] = [(place, list(found)) for place, found in self._journal.written.items() if found]
        before = read_transaction(records[-1][1] or b"")
        process = next(iter(self._processes.values()))
        process.producer_id, process.epoch = before.producer_id, MAX_EPOCH - 1
        worn = Transaction(
            before.producer_id, MAX_EPOCH - 1, timeout_ms=before.timeout_ms, updated_ms=before.updated_ms
        )
        self._journal.put(partition, [transaction_record(ID, worn)])
        self._shown_records = 1
        await self._do_restart(words)

    async def _do_advance(self, words: list[str]) -> None:
        await asyncio.sleep(seconds(words[0]))

    async def _do_restart(self, words: list[str]) -> None:
        assert self._coordinator is not None
        for partition in range(4):
            self._coordinator.on_leadership(partition, False, self._epoch)
        self._epoch += 1
        for partition in range(4):
            self._coordinator.on_leadership(partition, True, self._epoch)

    async def _do_lose_next_write(self, words: list[str]) -> None:
        self._journal.lose(KafkaError(ErrorCode.not_enough_replicas))

    async def _do_hold_commits(self, words: list[str]) -> None:
        self._journal.hold()

    async def _do_release_commits(self, words: list[str]) -> None:
        self._journal.release()


def shown(transaction: Transaction) -> str:
    where = " ".join(f"{topic}-{partition}" for topic, partition in sorted(transaction.partitions))
    text = f"{transaction.state.value}, producer {transaction.producer_id} epoch {transaction.epoch}"
    return text + (f" in {where}" if where else "")


def _place(word: str) -> tuple[str, int]:
    topic, _, partition = word.rpartition("-")
    return topic, int(partition)
