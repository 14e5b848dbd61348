"""From the partitions that a fetch asks for to its response: the part that consumers and replicas share.

`FetchReading.read` goes over the partitions once, in order, within the byte limit, and collects what each of them gives
in an `Attempt`; how one partition is read is up to the `PartitionReader` that the caller hands in (fetch.py has the one
for consumers, replica_fetch.py the one for replicas). `FetchReading.answer` turns an attempt into the response. Records
in memory are taken at once, others are read off the event loop.

Invariant: within a session (KIP-227) a partition is left out of the response only if its client has been sent its high
watermark and log start already and it has no records, no error and no other news.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Generic, Protocol

from headrace.api.contract import Caller
from headrace.api.fetch_sessions import FetchPlan, W
from headrace.api.leader_hints import LeaderHints
from headrace.log.reading import Slice
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.wire.batches import Buffer, walk
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message

_LEADER_IS_NEWS = (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch)

OffLoop = Callable[[Callable[[], Buffer]], Awaitable[Buffer]]


class PartitionRead(Generic[W]):
    """What one partition gave: a slice of its log, or news that the client must have at once."""

    __slots__ = ("diverging", "error", "partition", "preferred", "records", "slice", "wanted")

    def __init__(
        self,
        wanted: W,
        partition: Partition | None,
        slice_: Slice | None = None,
        *,
        error: KafkaError | None = None,
        diverging: tuple[int, int] | None = None,
        preferred: int = -1,
    ) -> None:
        self.wanted = wanted
        self.partition = partition
        self.slice = slice_
        self.error = error
        self.diverging = diverging
        """The epoch and the offset where the client's log parts from this one (KIP-595)."""
        self.preferred = preferred
        """Another replica, which the client should ask instead (KIP-392)."""
        self.records: Buffer | None = b"" if slice_ is None or slice_.size == 0 else None


class PartitionReader(Protocol[W]):
    """One kind of client: what it may read of a partition, and from which replica."""

    @property
    def caller(self) -> Caller: ...

    @property
    def stable(self) -> bool:
        """It reads committed transactions only, and is told which were aborted."""
        ...

    def check(self, topic: str) -> None:
        """Raises KafkaError if the gate does not let this client read the topic."""
        ...

    def read(self, wanted: W, partition: Partition, max_bytes: int, *, at_least_one: bool) -> PartitionRead[W]:
        """Raises KafkaError if this client may not read here."""
        ...


class Attempt(Generic[W]):
    """One pass over the partitions of a fetch."""

    __slots__ = ("peer", "plan", "reads", "size", "stable", "urgent")

    def __init__(self, plan: FetchPlan[W], reader: PartitionReader[W]) -> None:
        self.plan = plan
        self.peer = reader.caller.peer
        self.stable = reader.stable
        self.reads: list[PartitionRead[W]] = []
        self.size = 0
        self.urgent = False
        """The response must not wait: it has news, or waiting cannot make it larger."""

    def add(self, read: PartitionRead[W]) -> None:
        self.reads.append(read)
        if read.slice is None:
            self.urgent = True
        else:
            self.size += read.slice.size
            self.urgent = self.urgent or read.slice.more  # whole batches seldom fill the room exactly

    @property
    def left_over(self) -> Iterator[W]:
        """Partitions that have records for which there was no room, or that are held back."""
        for read in self.reads:
            partition, wanted = read.partition, read.wanted
            empty = read.slice is not None and not read.slice.size
            if empty and partition is not None and wanted.offset < partition.log.end_offset:
                yield wanted

    @property
    def unsent(self) -> Iterator[Partition]:
        """Partitions of whose high watermark or log start the client has not been sent the latest."""
        for read in self.reads:
            partition, sent = read.partition, (read.wanted.sent_end, read.wanted.sent_start)
            if partition is not None and sent != (partition.high_watermark, partition.log.start_offset):
                yield partition

    def load_cached(self) -> bool:
        """Take everything that is in memory; False if something is not."""
        complete = True
        for read in self.reads:
            if read.records is None and read.slice is not None:
                read.records = read.slice.load_cached()
                complete = complete and read.records is not None
        return complete


class FetchReading:
    def __init__(self, host: ReplicaHost, off_loop: OffLoop, max_bytes: int, hints: LeaderHints) -> None:
        self._host = host
        self._off_loop = off_loop
        self._max_bytes = max_bytes
        self._hints = hints

    def read(self, plan: FetchPlan[W], max_bytes: int, reader: PartitionReader[W]) -> Attempt[W]:
        """One pass over the partitions. The first batch goes out whole, even beyond the limits (KIP-74)."""
        attempt = Attempt(plan, reader)
        left = min(max_bytes, self._max_bytes)
        for wanted in plan.wanted:
            room = max(0, min(wanted.max_bytes, left - attempt.size))
            try:
                partition = self._find(wanted, reader)
                attempt.add(reader.read(wanted, partition, room, at_least_one=attempt.size == 0))
            except KafkaError as error:
                attempt.add(PartitionRead(wanted, None, error=error))
        return attempt

    def _find(self, wanted: W, reader: PartitionReader[W]) -> Partition:
        if wanted.topic_id is not None:
            partition = self._host.find_by_id(wanted.topic_id, wanted.index)
            reader.check(partition.topic)
            return partition
        if not wanted.topic:
            raise KafkaError(ErrorCode.unknown_topic_id)
        reader.check(wanted.topic)  # before it is told whether there is such a topic
        return self._host.find(wanted.topic, wanted.index)

    # --- the response -----------------------------------------------------------------------------------------------

    def answer(self, attempt: Attempt[W]) -> Message | Awaitable[Message]:
        return self.response(attempt) if attempt.load_cached() else self._load(attempt)

    async def _load(self, attempt: Attempt[W]) -> Message:
        for read in attempt.reads:
            if read.records is None and read.slice is not None:
                read.records = await self._off_loop(read.slice.load)
        return self.response(attempt)

    def response(self, attempt: Attempt[W]) -> Message:
        """Of an attempt whose records are all loaded."""
        plan, topics = attempt.plan, list[Message]()
        response = Message(session_id=plan.session_id, responses=topics, node_endpoints=[])
        last_name: object = topics
        for read in attempt.reads:
            wanted = read.wanted
            answer = _refused(read) if read.partition is None else _served(read, read.partition, attempt)
            if answer is None:
                continue
            name = (wanted.topic, wanted.topic_id)
            if name != last_name:
                topics.append(Message(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[]))
                last_name = name
            topics[-1].partitions.append(answer)
            if read.error is not None and read.error.code in _LEADER_IS_NEWS:
                self._hints.point(attempt.peer, wanted.topic_id or wanted.topic, wanted.index, answer, response)
            if plan.session is not None and read.records:
                plan.session.served(wanted)
        return response


def _refused(read: PartitionRead[W]) -> Message:
    code = read.error.code if read.error is not None else ErrorCode.unknown_server_error
    read.wanted.sent_end = -1
    return Message(partition_index=read.wanted.index, error_code=code, high_watermark=-1, records=b"")


def _served(read: PartitionRead[W], partition: Partition, attempt: Attempt[W]) -> Message | None:
    """None when the client of a session has been sent all of it already."""
    wanted = read.wanted
    committed, start = partition.committed_log, partition.log.start_offset
    end = committed.high_watermark
    is_known = end == wanted.sent_end and start == wanted.sent_start
    is_redirected = read.diverging is not None or read.preferred >= 0
    if attempt.plan.incremental and is_known and not read.records and not is_redirected:
        return None
    wanted.sent_end, wanted.sent_start = end, start
    partition.bytes_out += len(read.records or b"")
    answer = Message(
        partition_index=wanted.index,
        high_watermark=end,
        last_stable_offset=committed.stable_end(),
        log_start_offset=start,
        aborted_transactions=_aborted(partition, wanted.offset, read.records) if attempt.stable else None,
        preferred_read_replica=read.preferred,
        records=read.records,
    )
    if read.diverging is not None:
        answer.diverging_epoch = Message(epoch=read.diverging[0], end_offset=read.diverging[1])
    return answer


def _aborted(partition: Partition, offset: int, records: Buffer | None) -> list[Message]:
    """The aborted transactions that have something in these records."""
    if not records or not partition.log.aborted_txns:
        return []
    end = max((header.next_offset for _, header in walk(records)), default=offset)
    aborted = partition.log.aborted(offset, end)  # and not up to the end of the log: there may be very many
    return [Message(producer_id=producer_id, first_offset=first) for producer_id, first in aborted]


def diverging(wanted: W, partition: Partition) -> PartitionRead[W] | None:
    """For a client that says which epoch its last record has: where its history parts from this log, if it does."""
    if wanted.last_fetched_epoch < 0:
        return None
    parted = partition.diverging(wanted.offset, wanted.last_fetched_epoch)
    return None if parted is None else PartitionRead(wanted, partition, diverging=parted)
