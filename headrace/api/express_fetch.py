"""The express lane of Fetch: for consumers without a session, such as librdkafka's.

Such a request is decoded from bytes and its response written as bytes (api.express_codec), where the full path
(api.fetch) builds messages; partitions are read in the same way. A request for which there are too few bytes waits as
its frame, and is read once more when there are enough or its timeout has passed. Everything unusual is left to the full
path, which starts over: sessions, replicas, racks, errors, aborted transactions, partitions that are very many or named
twice, and records that are not in memory, too many to be copied at once, or beyond the budget (reply_budget.py). A
request that has waited here does not wait there. A property test compares both paths, byte for byte.

A reply of at most FREE_BYTES does not ask the budget: a connection has at most 512 replies that wait, that is 2 MiB.
"""

from __future__ import annotations

from msgspec import Struct

from headrace.api.contract import Caller
from headrace.api.express_codec import FetchedPartition, PartitionFound, Topic, read_fetch, write_fetch
from headrace.api.fetch_reading import AT_ONCE_BYTES
from headrace.api.gate import Gate
from headrace.api.reply_budget import FREE_BYTES, ReplyBudget, granted
from headrace.log.reading import Slice
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.replicas.waiters import Audience, Wait
from headrace.wire.batches import Buffer
from headrace.wire.errors import KafkaError
from headrace.world.clock import Clock


class ExpressFetch:
    def __init__(self, host: ReplicaHost, gate: Gate, clock: Clock, max_bytes: int, budget: ReplyBudget) -> None:
        self._host = host
        self._gate = gate
        self._clock = clock
        self._max_bytes = max_bytes
        self._budget = budget

    def __call__(
        self, frame: memoryview, version: int, at: int, correlation_id: int, caller: Caller
    ) -> list[Buffer] | LongPoll | None:
        """The whole reply, or one that waits for more records; None if this request must take the full path."""
        found = self._read(frame, version, at, caller)
        if found is None:
            return None
        if found.missing_bytes > 0 and found.wait_ms > 0:
            return LongPoll(self, frame, (version, at, correlation_id, caller), found, self._clock)
        return found.whole(version, correlation_id) if self._load(found, caller) else None

    def answer(
        self, frame: memoryview, version: int, at: int, correlation_id: int, caller: Caller
    ) -> list[Buffer] | None:
        """The reply with what there is, enough or not."""
        found = self._read(frame, version, at, caller)
        return None if found is None or not self._load(found, caller) else found.whole(version, correlation_id)

    def _read(self, frame: memoryview, version: int, at: int, caller: Caller) -> _Answer | None:
        asked = read_fetch(frame, version, at)
        if asked is None:
            return None
        wait_ms, min_bytes, max_bytes, stable, topics = asked
        gate, left, size, more = self._gate, min(max_bytes, self._max_bytes), 0, False
        found = _Answer(wait_ms, stable, topics)
        try:
            for topic, partitions in topics:
                for index, leader_epoch, offset, last_epoch, room in partitions:
                    partition = self._partition(topic, index)
                    if gate.asks:
                        gate.check_reader(caller, partition.topic)
                    partition.check_leader(leader_epoch)
                    if last_epoch >= 0 and partition.diverging(offset, last_epoch) is not None:
                        return None
                    if stable and partition.log.aborted_txns:
                        return None
                    part = partition.read(offset, max(0, min(room, left)), at_least_one=not size, stable=stable)
                    left -= part.size
                    size += part.size
                    more = more or part.more
                    found.read.append((partition, part))
        except KafkaError:
            return None
        if not found.read or (len(found.read) > 1 and found.names_twice):
            return None
        found.size = size
        found.missing_bytes = 0 if more else min(min_bytes, max_bytes) - size
        return found

    def _load(self, found: _Answer, caller: Caller) -> bool:
        """Take the records, if all of them are in memory and there is room for them."""
        size, grant = found.size, None
        if size > FREE_BYTES:
            grant = None if size > AT_ONCE_BYTES else self._budget.take(size, caller)
            if grant is None:
                return False
        read = iter(found.read)
        for topic, partitions in found.asked:
            answers: list[PartitionFound] = []
            for index, *_ in partitions:
                partition, part = next(read)
                records = part.load_cached()
                if records is None:
                    return False
                if grant is not None and records:
                    records = granted(records, grant)
                committed = partition.committed_log
                marks = (committed.high_watermark, committed.stable_end(), partition.log.start_offset)
                answers.append((index, *marks, records))
            found.topics.append((topic, answers))
        return True

    def _partition(self, topic: Topic, index: int) -> Partition:
        return self._host.find(topic, index) if isinstance(topic, str) else self._host.find_by_wire_id(topic, index)


TopicsAsked = list[tuple[Topic, list[FetchedPartition]]]


class _Answer(Struct):
    """What was found for a request."""

    wait_ms: int
    stable: bool
    asked: TopicsAsked
    size: int = 0
    missing_bytes: int = 0  # until min_bytes are reached
    read: list[tuple[Partition, Slice]] = []  # of each partition that was asked for
    topics: list[tuple[Topic, list[PartitionFound]]] = []  # once they are loaded

    @property
    def names_twice(self) -> bool:
        return len({partition for partition, _ in self.read}) < len(self.read)

    def whole(self, version: int, correlation_id: int) -> list[Buffer]:
        if self.size:
            answers = (answer for _, answers in self.topics for answer in answers)
            for (partition, _), answer in zip(self.read, answers, strict=True):
                partition.bytes_out += len(answer[-1])
        return write_fetch(version, correlation_id, self.stable, self.topics)


class LongPoll:
    """A request that waits for records to come, or for its time to be up."""

    __slots__ = ("_asked", "_lane", "due", "frame")

    def __init__(
        self, lane: ExpressFetch, frame: memoryview, asked: tuple[int, int, int, Caller], found: _Answer, clock: Clock
    ) -> None:
        self.frame = memoryview(bytes(frame))
        self._lane = lane
        self._asked = asked  # version, where the body begins, correlation id, caller
        partitions = [partition for partition, _ in found.read]
        audience = Audience.STABLE if found.stable else Audience.COMMITTED
        self.due = Wait(partitions, audience, found.missing_bytes, found.wait_ms / 1000, clock).due

    def answer(self) -> list[Buffer] | None:
        return self._lane.answer(self.frame, *self._asked)
