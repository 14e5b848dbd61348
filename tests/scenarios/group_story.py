"""Plays a story about a consumer group and writes down what can be seen: replies, and records in the journal.

A story is a text of blocks: commands, a line of dashes, what is seen, an empty line. The commands:

    settings initial-delay=3s max-size=2 policy=upgrade      before the first other command
    join NAME [instance=I] [protocols=range,roundrobin] [version=9] [session=10s] [rebalance=60s] [topic=t] [member=M]
    sync NAME [plan=NAME:text,NAME:text]      the leader brings a plan
    heartbeat NAME [generation=N]
    leave NAME [NAME ...]  |  leave instance=I
    commit NAME topic-partition=offset [generation=N]  |  commit - topic-partition=offset     (- : no member)
    fetch [topic-partition ...]               what the group has committed
    delete-offsets topic-partition ...  |  delete-group  |  delete-topic NAME [unnoticed]  |  create-topic NAME
    beat NAME [topics=t,u] [pattern=RE] [assignor=range] [instance=I] [rebalance=60s] [epoch=N] [slow]
                                              a heartbeat of a consumer group (KIP-848); the first one joins. The
                                              process takes over what it is told to have, unless it is slow
    exit NAME  |  exit NAME for-now           it leaves, or is a static member that may come back
    describe                                  the consumer group
    share NAME [topics=t,u] [epoch=N]         a heartbeat of a share group (KIP-932); the first one joins
    unshare NAME  |  shared                   it leaves  |  the share group
    states                                    what the share coordinator has
    states-fail, states-wait, states-work     it refuses everything, does not answer, works again
    grow NAME 6                               a topic has so many partitions from now on
    advance 10s                               let time pass (s, m, h, d)
    show                                      the group's state and members
    restart                                   another broker takes the partition over: read it back from the journal
    load-slowly, load-done                    the same, in two steps
    lose-next-write                           the journal fails
    hold-commits, release-commits             the high watermark stands still, then moves on

There is one group, `g`. NAME is a process: it remembers its member id and generation, and the options
of its last join. Member ids are shown as NAME#1, NAME#2 in the order in which they are first seen.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from headrace.coordinators.groups.commands import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    Join,
    Leave,
    OffsetToCommit,
    Sync,
)
from headrace.coordinators.groups.consumer_records import ConsumerKey
from headrace.coordinators.groups.coordinator import GroupCommand, GroupCoordinator
from headrace.coordinators.groups.records import OffsetKey, read_group, read_key, read_offset
from headrace.coordinators.groups.settings import GroupSettings
from headrace.coordinators.groups.share_records import SHARE_KINDS
from headrace.coordinators.groups.subscription import read_assignment, write_assignment
from headrace.wire.errors import ErrorCode, KafkaError, Malformed
from headrace.world.entropy import SeededEntropy
from sim.loop import SimClock
from tests.scenarios.consumer_acts import ConsumerActs
from tests.scenarios.share_acts import ShareActs
from tests.share_states import MemoryStates
from tests.unit.coordinators.stage import Cluster, MemoryJournal, subscription

GROUP = "g"
UNIT_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
MEMBER_ID = re.compile(r"([\w.]+)-([0-9a-f]{8}-[0-9a-f-]{27})")
SETTLE_S = 0.001


def seconds(text: str) -> float:
    number, unit = re.fullmatch(r"(\d+)(ms|s|m|h|d)", text).groups()  # type: ignore[union-attr]
    return int(number) * UNIT_S[unit]


class Process:
    """A consumer: what it was told last."""

    def __init__(self) -> None:
        self.member_id = ""
        self.instance: str | None = None
        self.generation = -1
        self.protocol: str | None = None
        self.options: dict[str, str] = {}  # of its last join


class GroupStory:
    def __init__(self) -> None:
        self._journal = MemoryJournal()
        self._cluster = Cluster({"t": {}, "u": {}, "forever": {"retention.ms": "-1"}})
        self._settings = GroupSettings(initial_rebalance_delay_ms=0)
        self._processes: dict[str, Process] = {}
        self._names: dict[str, str] = {}  # member id -> as it is shown
        self._consumer = ConsumerActs(self._cluster, self._ask, self._see)
        self._states = MemoryStates()
        self._share = ShareActs(self._cluster, self._states, self._ask, self._see)
        self._seen: list[str] = []
        self._shown_records = 0
        self._epoch = 0
        self._coordinator: GroupCoordinator | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def play(self, lines: list[str]) -> list[str]:
        """Carries out one block and returns what was seen."""
        self._seen = []
        for line in lines:
            name, *words = line.split()
            if name != "settings" and self._coordinator is None:
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
        self._coordinator = GroupCoordinator(
            self._journal, SimClock(), SeededEntropy(1), self._cluster, self._settings, self._states
        )
        self._run(self._coordinator.run())
        self._coordinator.on_leadership(0, True, self._epoch)
        await self._settle()

    async def _settle(self) -> None:
        await asyncio.sleep(SETTLE_S)
        self._show_records()

    def _run(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _ask(self, who: str, command: GroupCommand, told: Callable[[object], str]) -> None:
        assert self._coordinator is not None
        answered = self._coordinator.submit(command)
        self._show_records()

        async def wait() -> None:
            try:
                self._see(f"{who}: {told(await answered)}")
            except KafkaError as error:
                self._see(f"{who}: {error.code.name.upper()}")

        self._run(wait())

    # --- what is seen -----------------------------------------------------------------------------------------------

    def _see(self, line: str) -> None:
        self._seen.append(MEMBER_ID.sub(lambda found: self._shown(found[0], found[1]), line))

    def _shown(self, member_id: str, prefix: str) -> str:
        if member_id not in self._names:
            number = sum(name.startswith(f"{prefix}#") for name in self._names.values()) + 1
            self._names[member_id] = f"{prefix}#{number}"
        return self._names[member_id]

    def _show_records(self) -> None:
        written = self._journal.written.get(0, [])
        for key, value in written[self._shown_records :]:
            what = read_key(key)
            if isinstance(what, ConsumerKey) and what.type in SHARE_KINDS:
                self._see(f"log: {self._share.record(what, value)}")
            elif isinstance(what, ConsumerKey):
                self._see(f"log: {self._consumer.record(what, value)}")
            elif isinstance(what, OffsetKey):
                place = f"{what.topic}-{what.partition}"
                self._see(f"log: offset {place} " + ("removed" if value is None else str(read_offset(value).offset)))
            elif value is None:
                self._see("log: group removed")
            else:
                group = read_group(value)
                members = ", ".join(f"{m.member_id} has {_part_text(m.assignment)}" for m in group.members)
                self._see(f"log: generation {group.generation} of " + (members or "nobody"))
        self._shown_records = len(written)

    # --- members ----------------------------------------------------------------------------------------------------

    def _process(self, name: str) -> Process:
        return self._processes.setdefault(name, Process())

    async def _do_settings(self, words: list[str]) -> None:
        options = dict(word.split("=") for word in words)
        if "initial-delay" in options:
            delay_ms = int(seconds(options["initial-delay"]) * 1000)
            self._settings = replace(self._settings, initial_rebalance_delay_ms=delay_ms)
        if "max-size" in options:
            self._settings = replace(
                self._settings, max_size=int(options["max-size"]), consumer_max_size=int(options["max-size"])
            )
        if "policy" in options:
            self._settings = replace(self._settings, migration_policy=options["policy"])

    async def _do_join(self, words: list[str]) -> None:
        name, process = words[0], self._process(words[0])
        process.options |= dict(word.split("=") for word in words[1:])
        options, version = process.options, int(process.options.get("version", "9"))
        process.instance = options.get("instance", process.instance)
        metadata = subscription(options.get("topic", "t"))
        command = Join(
            group_id=GROUP,
            member_id=process.options.pop("member", process.member_id),
            instance_id=process.instance,
            client_id=name,
            client_host="/127.0.0.1",
            session_timeout_ms=int(seconds(options.get("session", "10s")) * 1000),
            rebalance_timeout_ms=int(seconds(options.get("rebalance", "60s")) * 1000),
            protocol_type=options.get("type", "consumer"),
            protocols=tuple((protocol, metadata) for protocol in options.get("protocols", "range").split(",")),
            needs_member_id=version >= 4,
            can_skip_assignment=version >= 9,
        )

        def told(reply: object) -> str:
            if reply.error in (ErrorCode.none, ErrorCode.member_id_required):
                process.member_id, process.generation = reply.member_id, reply.generation
                process.protocol = reply.protocol
            elif reply.error is ErrorCode.unknown_member_id:
                process.member_id = ""
            if reply.error is not ErrorCode.none:
                return f"{reply.error.name.upper()}" + (f" {reply.member_id}" if reply.member_id else "")
            members = ", ".join(member for member, _, _ in reply.members)
            leader = reply.leader or "nobody"
            return (
                f"joined generation {reply.generation} as {reply.member_id}, {leader} leads by {reply.protocol}"
                + (f" [{members}]" if members else "")
                + (" (skip assignment)" if reply.skip_assignment else "")
            )

        self._ask(name, command, told)

    async def _do_sync(self, words: list[str]) -> None:
        name, options = words[0], dict(word.split("=") for word in words[1:])
        process, plan = self._process(name), {}
        for part in filter(None, options.get("plan", "").split(",")):
            member, _, text = part.partition(":")
            plan[self._process(member).member_id] = _part(text)
        generation = int(options.get("generation", process.generation))
        protocol = options.get("protocol", process.protocol)
        command = Sync(GROUP, process.member_id, process.instance, generation, "consumer", protocol, plan)

        def told(reply: object) -> str:
            if reply.error is not ErrorCode.none:
                return f"sync {reply.error.name.upper()}"
            return f"has {_part_text(reply.assignment)}"

        self._ask(name, command, told)

    async def _do_heartbeat(self, words: list[str]) -> None:
        for name in words:
            process = self._process(name)
            command = Heartbeat(GROUP, process.member_id, process.instance, process.generation)
            self._ask(name, command, lambda code: f"heartbeat {code.name.upper()}")

    async def _do_leave(self, words: list[str]) -> None:
        leaving: list[tuple[str, str | None]] = []
        for word in words:
            if word.startswith("instance="):
                leaving.append(("", word.removeprefix("instance=")))
            else:
                process = self._process(word)
                leaving.append((process.member_id, process.instance))
                process.member_id = ""

        def told(codes: object) -> str:
            return "left " + " ".join(code.name.upper() for code in codes)

        self._ask(" ".join(words), Leave(GROUP, tuple(leaving)), told)

    # --- consumer groups ---------------------------------------------------------------------------------------------

    async def _do_beat(self, words: list[str]) -> None:
        self._consumer.beat(words)

    async def _do_exit(self, words: list[str]) -> None:
        self._consumer.exit(words)

    async def _do_describe(self, words: list[str]) -> None:
        self._consumer.describe()

    # --- share groups ------------------------------------------------------------------------------------------------

    async def _do_share(self, words: list[str]) -> None:
        self._share.beat(words)

    async def _do_unshare(self, words: list[str]) -> None:
        self._share.exit(words)

    async def _do_shared(self, words: list[str]) -> None:
        self._share.describe()

    async def _do_states(self, words: list[str]) -> None:
        self._share.show_states()

    async def _do_states_fail(self, words: list[str]) -> None:
        self._states.refusal = KafkaError(ErrorCode.coordinator_not_available)

    async def _do_states_wait(self, words: list[str]) -> None:
        self._states.hold()

    async def _do_states_work(self, words: list[str]) -> None:
        self._states.refusal = None
        self._states.release()

    # --- topics -----------------------------------------------------------------------------------------------------

    async def _do_grow(self, words: list[str]) -> None:
        self._cluster.grow(words[0], int(words[1]))

    # --- offsets ----------------------------------------------------------------------------------------------------

    async def _do_commit(self, words: list[str]) -> None:
        name, *assignments = words
        process = Process() if name == "-" else self._process(name)
        if name in self._consumer.processes:
            acting = self._consumer.processes[name]
            process.member_id, process.instance, process.generation = acting.member_id, acting.instance, acting.epoch
        generation, offsets = process.generation, []
        for word in assignments:
            place, _, number = word.partition("=")
            if place == "generation":
                generation = int(number)
                continue
            topic, _, partition = place.rpartition("-")
            offsets.append(OffsetToCommit(topic, self._cluster.id_of(topic), int(partition), int(number), -1, ""))
        command = CommitOffsets(GROUP, process.member_id, process.instance, generation, tuple(offsets))
        self._ask(name, command, lambda codes: "committed " + " ".join(code.name.upper() for code in codes))

    async def _do_fetch(self, words: list[str]) -> None:
        places = tuple(_place(word) for word in words) or None

        def told(offsets: object) -> str:
            if isinstance(offsets, ErrorCode):
                return offsets.name.upper()
            found = [f"{topic}-{index}={committed.offset}" for (topic, index), committed in offsets.items()]
            return " ".join(found) or "no offsets"

        self._ask("offsets", FetchOffsets(GROUP, places), told)

    async def _do_delete_offsets(self, words: list[str]) -> None:
        def told(codes: list[ErrorCode] | ErrorCode) -> str:
            each = [codes] if isinstance(codes, ErrorCode) else codes
            return " ".join(code.name.upper() for code in each)

        self._ask("admin", DeleteOffsets(GROUP, tuple(_place(word) for word in words)), told)

    async def _do_delete_group(self, words: list[str]) -> None:
        assert self._coordinator is not None
        deleting = self._coordinator.submit(DeleteGroup(GROUP))

        async def delete(coordinator: GroupCoordinator) -> None:
            try:
                code = await coordinator.finish_deletion(GROUP, await deleting)
            except KafkaError as error:
                code = error.code
            self._see(f"admin: {code.name.upper()}")

        self._show_records()
        self._run(delete(self._coordinator))

    async def _do_delete_topic(self, words: list[str]) -> None:
        assert self._coordinator is not None
        self._cluster.drop(words[0])
        if "unnoticed" not in words:
            self._coordinator.on_topic_deleted(words[0])

    async def _do_create_topic(self, words: list[str]) -> None:
        self._cluster.create(words[0])

    # --- the world --------------------------------------------------------------------------------------------------

    async def _do_advance(self, words: list[str]) -> None:
        await asyncio.sleep(seconds(words[0]))

    async def _do_show(self, words: list[str]) -> None:
        def told(group: object) -> str:
            if isinstance(group, str):
                return "no such group"
            members = ", ".join(f"{m.member_id} has {_part_text(m.assignment)}" for m in group.members)
            return f"{group.state}: {members or 'nobody'}"

        self._ask("group", DescribeGroup(GROUP), told)

    async def _do_restart(self, words: list[str]) -> None:
        assert self._coordinator is not None
        self._coordinator.on_leadership(0, False, self._epoch)
        self._epoch += 1
        self._coordinator.on_leadership(0, True, self._epoch)

    async def _do_load_slowly(self, words: list[str]) -> None:
        self._journal.block_reads()
        await self._do_restart(words)

    async def _do_load_done(self, words: list[str]) -> None:
        self._journal.unblock_reads()

    async def _do_lose_next_write(self, words: list[str]) -> None:
        self._journal.lose(KafkaError(ErrorCode.not_enough_replicas))

    async def _do_hold_commits(self, words: list[str]) -> None:
        self._journal.hold()

    async def _do_release_commits(self, words: list[str]) -> None:
        self._journal.release()


def _part(text: str) -> bytes:
    """Partitions, such as t0+t1, are written as consumers do; any other text is the group's own secret."""
    parts: dict[str, frozenset[int]] = {}
    for place in text.split("+"):
        found = re.fullmatch(r"([a-z])(\d)", place)
        if found is None:
            return text.encode()
        parts[found[1]] = parts.get(found[1], frozenset()) | {int(found[2])}
    return write_assignment(1, parts)


def _part_text(raw: bytes) -> str:
    try:
        parts = read_assignment(raw)
    except Malformed:
        return raw.decode() or "nothing"
    return "+".join(f"{topic}{number}" for topic in parts for number in sorted(parts[topic])) or "nothing"


def _place(word: str) -> tuple[str, int]:
    topic, _, partition = word.rpartition("-")
    return topic, int(partition)
