"""Runs the shards of one internal topic on the partitions that this broker leads.

The runtime owns everything that a shard must not know: the journal, the clock, and the futures of waiting requests. The
broker tells it which partitions it leads (`on_leadership`); handlers submit commands (`submit`).

Invariants:
- Commands take effect in the order in which they are submitted, before `submit` returns.
- A reply is sent when its records, and those of every earlier command, are committed. So nobody reads a commit that
  could still be lost.
- While a partition is being loaded, its commands are rejected with COORDINATOR_LOAD_IN_PROGRESS and never answered from
  incomplete state.
- A broker that may have been replaced answers nothing, not even lookups.
- A journal that fails ends the shard: waiting requests get a retriable error, and the partition is loaded again from
  the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct, field

from headrace.coordinators.journal_errors import FENCED, JOURNAL_ERRORS
from headrace.coordinators.shard import Alarm, Outcome, Record, Shard, Wait
from headrace.model.image import GROUP_OFFSETS_TOPIC
from headrace.model.journal_entry import NO_PRODUCER_ID, JournalEntry
from headrace.model.transaction_end import TransactionEnd
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.clock import Clock, Timer

logger = logging.getLogger(__name__)

RELOAD_DELAY_S = 1.0
AGAIN_DELAY_S = 0.1  # after a second rejection in a row: a due timer may be rejected after each load
RECORDS_AT_ONCE = 100


class Journal(Protocol):
    """The partitions of the internal topic, on their leader."""

    def check_leads(self, topic: str, partition: int) -> None:
        """KafkaError if this broker may have lost the leadership of the partition."""
        ...

    def append(
        self, topic: str, partition: int, records: Sequence[Record], *, producer: tuple[int, int] | None = None
    ) -> Awaitable[None]:
        """Writes synchronously, in call order; the awaitable completes when the records are committed, and raises
        KafkaError if they are not. They belong to the transaction of `producer`, a producer id and epoch."""
        ...

    def append_end(self, topic: str, partition: int, end: TransactionEnd) -> Awaitable[None]:
        """Writes the end of a transaction in the same way."""
        ...

    def read(self, topic: str, partition: int) -> AsyncIterator[Sequence[JournalEntry]]:
        """Everything stored, in order, in chunks. Ends when the log's end at the time of the call has been read and
        is committed."""
        ...


S = TypeVar("S", bound=Shard)
_Answer = tuple["asyncio.Future[Any]", Any]


class _Alarm(Struct):
    """A timer that can be postponed without a call to the clock, as most session timers are at every heartbeat."""

    due_s: float
    command: Any
    handle: Timer | None = None

    def cancel(self) -> None:
        if self.handle is not None:
            self.handle.cancel()


class _Write(Struct):
    """Records that are being committed, and the replies that wait for them."""

    answers: list[_Answer]
    committed: bool = False


class _Seat(Struct, Generic[S]):
    """One led partition: its shard, and what waits for it. Replaced, never reused, when the shard is loaded again."""

    partition: int
    epoch: int
    shard: S
    ready: bool = False
    begun_again: bool = False  # because a write was rejected, and none was committed since
    left: bool = False
    after_load: list[Any] = field(default_factory=list)  # commands for every shard that came while this one loaded
    timers: dict[Hashable, _Alarm] = field(default_factory=dict)
    parked: dict[int, asyncio.Future[Any]] = field(default_factory=dict)
    writes: deque[_Write] = field(default_factory=deque)


def string_hash(text: str) -> int:
    """Java's String.hashCode, which counts in UTF-16 units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value


def partition_for(key: str, count: int) -> int:
    """The partition that holds `key`, as Kafka and its tools compute it."""
    return (string_hash(key) & 0x7FFFFFFF) % count


class CoordinatorRuntime(Generic[S]):
    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        make_shard: Callable[[], S],
        partition_count: Callable[[], int],
        topic: str = GROUP_OFFSETS_TOPIC,
        run_follow_up: Callable[[int, Any], None] | None = None,
    ) -> None:
        """`run_follow_up` is called with the partition's leader epoch and one follow-up of an outcome."""
        self._journal = journal
        self._clock = clock
        self._make_shard = make_shard
        self._partition_count = partition_count
        self._topic = topic
        self._run_follow_up = run_follow_up
        self._seats: dict[int, _Seat[S]] = {}
        self._epochs: dict[int, int] = {}  # the highest that was heard of, by partition
        self._to_load: asyncio.Queue[_Seat[S]] = asyncio.Queue()

    # --- leadership and loading -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Loads partitions as they are taken over, until cancelled."""
        try:
            async with asyncio.TaskGroup() as loads:
                while True:
                    loads.create_task(self._load(await self._to_load.get()))
        finally:
            for seat in list(self._seats.values()):
                self._leave(seat, KafkaError(ErrorCode.not_coordinator, "this broker is stopping"))

    def on_leadership(self, partition: int, leads: bool, epoch: int) -> None:
        """This broker leads the partition in `epoch`, or no longer does. Ignored if a higher epoch was reported."""
        if epoch < self._epochs.get(partition, epoch):
            return
        self._epochs[partition] = epoch
        seat = self._seats.get(partition)
        if seat is not None:
            if leads and epoch == seat.epoch:
                return
            self._leave(
                seat, KafkaError(ErrorCode.not_coordinator, f"{self._topic}-{partition} moved to another broker")
            )
        if leads:
            self._take(partition, epoch)

    def _take(self, partition: int, epoch: int, after_s: float = 0.0) -> None:
        seat = _Seat(partition, epoch, self._make_shard())
        self._seats[partition] = seat
        if after_s:
            self._clock.call_later(after_s, self._to_load.put_nowait, seat)
        else:
            self._to_load.put_nowait(seat)

    def _leave(self, seat: _Seat[S], reason: KafkaError) -> None:
        seat.left = True
        if self._seats.get(seat.partition) is seat:
            del self._seats[seat.partition]
        for alarm in seat.timers.values():
            alarm.cancel()
        waiting = [future for write in seat.writes for future, _ in write.answers]
        for future in [*waiting, *seat.parked.values()]:
            _fail(future, reason)
        seat.timers.clear()
        seat.parked.clear()
        seat.writes.clear()

    async def _load(self, seat: _Seat[S]) -> None:
        if seat.left:
            return
        try:
            async for chunk in self._journal.read(self._topic, seat.partition):
                for start in range(0, len(chunk), RECORDS_AT_ONCE):
                    for entry in chunk[start : start + RECORDS_AT_ONCE]:
                        if entry.key is not None:
                            seat.shard.apply(entry.key, entry.value, entry.producer_id)
                        else:
                            seat.shard.apply_end(entry.producer_id, entry.commit)
                    await asyncio.sleep(0)  # let other tasks run while a long journal is read
                if seat.left:
                    return
        except (KafkaError, OSError) as error:
            logger.warning("cannot read %s-%d (%s); trying again", self._topic, seat.partition, error)
            await self._clock.sleep(RELOAD_DELAY_S)
            if not seat.left:
                self._reload(seat, KafkaError(ErrorCode.coordinator_load_in_progress))
            return
        if seat.left:
            return
        seat.ready = True
        self._carry_out(seat, seat.shard.loaded(self._clock.now_ms()), None)
        for command in seat.after_load:
            if not seat.left:
                self._decide(seat, command, None)

    def _reload(self, seat: _Seat[S], reason: KafkaError, after_s: float = 0.0) -> None:
        self._leave(seat, reason)
        self._take(seat.partition, seat.epoch, after_s)
        self._seats[seat.partition].after_load.extend(seat.after_load)

    # --- commands ---------------------------------------------------------------------------------------------------

    def submit(self, key: str, command: Any) -> asyncio.Future[Any]:
        """Decides before it returns; the future gets the reply, or the KafkaError that rejects the command."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        seat = self._seat_of(key)
        if seat is None:
            _fail(future, KafkaError(ErrorCode.not_coordinator, f"this broker does not coordinate {key!r}"))
        else:
            self._ask(seat, command, future)
        return future

    async def ask_all(self, command: Any) -> list[Any]:
        """The replies of all shards here, one shard in a turn of the event loop; KafkaError if one is loading, or has
        left meanwhile."""
        replies = []
        for seat in list(self._seats.values()):
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            if seat.left:
                raise KafkaError(ErrorCode.not_coordinator, f"{self._topic}-{seat.partition} has moved; try again")
            self._ask(seat, command, future)
            replies.append(await future)
            await asyncio.sleep(0)
        return replies

    def loaded(self) -> list[tuple[int, int]]:
        """The partitions that are loaded here, with their leader epochs."""
        return [(seat.partition, seat.epoch) for seat in self._seats.values() if seat.ready]

    def ask(self, partition: int, command: Any) -> asyncio.Future[Any]:
        """As `submit`, to the shard of one partition."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        seat = self._seats.get(partition)
        if seat is None:
            _fail(future, KafkaError(ErrorCode.not_coordinator, f"{self._topic}-{partition} is not led here"))
        else:
            self._ask(seat, command, future)
        return future

    def _ask(self, seat: _Seat[S], command: Any, future: asyncio.Future[Any]) -> None:
        if not seat.ready:
            _fail(future, _loading(self._topic, seat.partition))
            return
        try:
            self._journal.check_leads(self._topic, seat.partition)
        except KafkaError as error:
            _fail(future, KafkaError(JOURNAL_ERRORS.get(error.code, error.code), error.message))
            return
        self._decide(seat, command, future)

    def tell(self, key: str, command: Any) -> None:
        """Submits the command to the shard of `key`, without a reply. Unlike replies, it does not wait until this
        broker knows that it was not replaced: if it was, its write is rejected, and the new leader loads what it
        needs."""
        seat = self._seat_of(key)
        if seat is not None and seat.ready:
            self._decide(seat, command, None)

    def _seat_of(self, key: str) -> _Seat[S] | None:
        count = self._partition_count()
        return self._seats.get(partition_for(key, count)) if count else None

    def tell_all(self, command: Any) -> None:
        """Submits the command to every shard here, without a reply; to a shard that is loading once it has loaded."""
        for seat in list(self._seats.values()):
            if seat.ready:
                self._decide(seat, command, None)
            else:
                seat.after_load.append(command)

    def end_transaction(self, partition: int, end: TransactionEnd) -> asyncio.Future[None]:
        """Commits or aborts what a producer has written to the partition's journal in a transaction; the future is done
        when that is committed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        seat = self._seats.get(partition)
        if seat is None:
            place = f"{self._topic}-{partition}"
            _fail(future, KafkaError(ErrorCode.not_leader_or_follower, f"this broker does not lead {place}"))
        elif not seat.ready:
            _fail(future, _loading(self._topic, partition))
        else:
            answers: list[_Answer] = [(future, None)]
            try:
                committed = asyncio.ensure_future(self._journal.append_end(self._topic, partition, end))
            except (KafkaError, OSError) as error:
                self._refused(seat, answers, error)
            else:
                seat.shard.apply_end(end.producer_id, end.commit)
                self._when_committed(seat, _Write(answers), committed)
        return future

    def shards(self) -> Iterator[S]:
        """The loaded shards, read-only; for metrics."""
        return (seat.shard for seat in self._seats.values() if seat.ready)

    def loading(self) -> int:
        return sum(not seat.ready for seat in self._seats.values())

    def _decide(self, seat: _Seat[S], command: Any, future: asyncio.Future[Any] | None) -> None:
        self._carry_out(seat, seat.shard.decide(command, self._clock.now_ms()), future)

    def _carry_out(self, seat: _Seat[S], outcome: Outcome, future: asyncio.Future[Any] | None) -> None:
        answers: list[_Answer] = [(self._follow_up(seat), follow_up) for follow_up in outcome.follow_ups]
        if future is not None:
            if isinstance(outcome.reply, Wait):
                seat.parked[outcome.reply.ticket] = future
            else:
                answers.append((future, outcome.reply))
        for ticket, reply in outcome.instructions:
            parked = seat.parked.pop(ticket, None)
            if parked is not None:
                answers.append((parked, reply))
        for name, alarm in outcome.timers.items():
            self._set_timer(seat, name, alarm)
        if outcome.records:
            self._write(seat, outcome.records, answers, outcome.producer)
        elif seat.writes:
            seat.writes[-1].answers.extend(answers)
        else:
            _release(answers)

    def _follow_up(self, seat: _Seat[S]) -> asyncio.Future[Any]:
        """A future that runs its follow-up when it is resolved, before the replies next to it are sent."""
        due: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def run(follow_up: asyncio.Future[Any]) -> None:
            if self._run_follow_up is not None and not follow_up.cancelled() and follow_up.exception() is None:
                self._run_follow_up(seat.epoch, follow_up.result())

        due.add_done_callback(run)
        return due

    # --- the journal ------------------------------------------------------------------------------------------------

    def _write(
        self, seat: _Seat[S], records: list[Record], answers: list[_Answer], producer: tuple[int, int] | None
    ) -> None:
        journal, at = self._journal, seat.partition
        producer_id = NO_PRODUCER_ID if producer is None else producer[0]
        try:
            committed = asyncio.ensure_future(journal.append(self._topic, at, records, producer=producer))
        except (KafkaError, OSError) as error:
            self._refused(seat, answers, error)
            return
        for key, value in records:
            seat.shard.apply(key, value, producer_id)
        self._when_committed(seat, _Write(answers), committed)

    def _refused(self, seat: _Seat[S], answers: list[_Answer], error: KafkaError | OSError) -> None:
        """Nothing was written. A fenced producer gets its error; any other error is a failure of the journal."""
        if isinstance(error, KafkaError) and error.code in FENCED:
            for future, _ in answers:
                _fail(future, error)
        else:
            seat.writes.append(_Write(answers))
            self._journal_failed(seat, error)

    def _when_committed(self, seat: _Seat[S], write: _Write, committed: asyncio.Future[None]) -> None:
        seat.writes.append(write)
        if committed.done():
            self._written(seat, write, committed)
        else:
            committed.add_done_callback(partial(self._written, seat, write))

    def _written(self, seat: _Seat[S], write: _Write, committed: asyncio.Future[None]) -> None:
        error = KafkaError(ErrorCode.not_coordinator) if committed.cancelled() else committed.exception()
        if seat.left:
            return
        if error is not None:
            self._journal_failed(seat, error)
            return
        write.committed = True
        seat.begun_again = False
        while seat.writes and seat.writes[0].committed:
            _release(seat.writes.popleft().answers)

    def _journal_failed(self, seat: _Seat[S], error: BaseException) -> None:
        code = error.code if isinstance(error, KafkaError) else ErrorCode.kafka_storage_error
        logger.warning("a write to %s-%d failed (%s); reading it back", self._topic, seat.partition, error)
        reason = KafkaError(JOURNAL_ERRORS.get(code, code), f"the coordinator's log refused a write: {error}")
        self._reload(seat, reason, AGAIN_DELAY_S if seat.begun_again else 0.0)
        self._seats[seat.partition].begun_again = True

    # --- timers -----------------------------------------------------------------------------------------------------

    def _set_timer(self, seat: _Seat[S], name: Hashable, wanted: Alarm | None) -> None:
        running = seat.timers.get(name)
        if wanted is None:
            if running is not None:
                running.cancel()
                del seat.timers[name]
            return
        due_s = self._clock.monotonic() + wanted.delay_ms / 1000
        if running is not None and running.due_s <= due_s:
            running.due_s, running.command = due_s, wanted.command
            return
        if running is not None:
            running.cancel()
        alarm = _Alarm(due_s, wanted.command)
        alarm.handle = self._clock.call_later(wanted.delay_ms / 1000, self._ring, seat, name, alarm)
        seat.timers[name] = alarm

    def _ring(self, seat: _Seat[S], name: Hashable, alarm: _Alarm) -> None:
        if seat.timers.get(name) is not alarm:
            return  # cancelled after the clock had already fired it
        remaining_s = alarm.due_s - self._clock.monotonic()
        if remaining_s > 0:
            alarm.handle = self._clock.call_later(remaining_s, self._ring, seat, name, alarm)
            return
        del seat.timers[name]
        self._decide(seat, alarm.command, None)


def _loading(topic: str, partition: int) -> KafkaError:
    return KafkaError(ErrorCode.coordinator_load_in_progress, f"{topic}-{partition} is being read back; try again")


def _release(answers: list[_Answer]) -> None:
    for future, reply in answers:
        if not future.done():  # its connection may be gone
            future.set_result(reply)


def _fail(future: asyncio.Future[Any], reason: KafkaError) -> None:
    if not future.done():
        future.set_exception(reason)
        future.exception()  # mark it as retrieved: there may be no waiter left, and asyncio would log it
