"""From the partitions that a fetch asks for to its response: the part that consumers and replicas share.

`FetchReading.read` goes over the partitions once, in order, within the byte limit, and collects what each of them gives
in an `Attempt`; how one partition is read is up to the `PartitionReader` that the caller hands in (fetch.py has the one
for consumers, replica_fetch.py the one for replicas). `FetchReading.answer` turns an attempt into the response. Records
in memory are taken at once if they are not very many, others are read off the event loop. All this is done in pieces
(pieces.py), so that thousands of partitions keep nobody waiting.

Loaded records count in a budget until they are sent (reply_budget.py). A reply for which there is no room gets less, if
its connection holds nothing else, and otherwise waits; either way the partitions are read again.

Invariants: nothing is loaded without a grant, but for a reply of FREE_BYTES; and within a session (KIP-227) a partition
is left out of the response only if its client has been sent its high watermark and log start already and it has no
records, no error and no other news.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Generic, Protocol

from headrace.api.contract import Caller, Steps
from headrace.api.fetch_sessions import FetchPlan, W
from headrace.api.leader_hints import LeaderHints
from headrace.api.pieces import PIECE, Answer, Pieces, settled
from headrace.api.reply_budget import FREE_BYTES, SMALL_BYTES, Grant, ReplyBudget, granted
from headrace.log.reading import EMPTY, Slice
from headrace.model.image import TopicImage
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.replicas.waiters import Wait
from headrace.wire.batches import Buffer, walk
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message

AT_ONCE_BYTES = 4 << 20  # of a reply that are copied on the event loop: about two milliseconds

_LEADER_IS_NEWS = (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch)
_UNKNOWN = (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id)

OffLoop = Callable[[Callable[[], list[Buffer]]], Awaitable[list[Buffer]]]


class PartitionRead(Generic[W]):
    """What one partition gave: a slice of its log, or news that the client must have at once."""

    __slots__ = ("diverging", "error", "partition", "preferred", "records", "slice", "view", "wanted")

    def __init__(
        self,
        wanted: W,
        partition: Partition | None,
        slice_: Slice | None = None,
        *,
        error: ErrorCode | None = None,
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
        self.view: TopicImage | None = None
        """What the client named, if that is a view: then the slice is empty, and `partition` is its base's."""
        self.records: Buffer | None = b"" if slice_ is None or slice_.size == 0 else None

    def keep(self, records: Buffer, grant: Grant | None) -> None:
        self.records = records if grant is None or not records else granted(records, grant)


class PartitionReader(Protocol[W]):
    """One kind of client: what it may read of a partition, and from which replica."""

    @property
    def caller(self) -> Caller: ...

    @property
    def sees_views(self) -> bool: ...

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

    def admit(self, wanted: W, partition: Partition) -> PartitionRead[W] | None:
        """As `read`, without records: the news that a client must have instead of these. Asked by those who see
        views."""
        ...


class Attempt(Generic[W]):
    """One pass over the partitions of a fetch."""

    __slots__ = ("caller", "has_views", "plan", "reads", "size", "stable", "unknown", "urgent")

    def __init__(self, plan: FetchPlan[W], reader: PartitionReader[W]) -> None:
        self.plan = plan
        self.caller = reader.caller
        self.stable = reader.stable
        self.reads: list[PartitionRead[W]] = []
        self.size = 0
        self.unknown = 0  # partitions that do not exist
        self.has_views = False
        self.urgent = False
        """The response must not wait: it has news, or waiting cannot make it larger."""

    def add(self, read: PartitionRead[W]) -> None:
        self.reads.append(read)
        self.has_views = self.has_views or read.view is not None
        if read.slice is None:
            self.urgent = True
            self.unknown += read.error in _UNKNOWN
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

    @property
    def unloaded(self) -> Iterator[tuple[PartitionRead[W], Slice]]:
        for read in self.reads:
            if read.records is None and read.slice is not None:
                yield read, read.slice

    def load_cached(self, grant: Grant | None) -> Steps[bool]:
        """Take everything that is in memory; False if something is not."""
        complete = True
        for at, (read, found) in enumerate(self.unloaded, 1):
            records = found.load_cached()
            if records is None:
                complete = False
            else:
                read.keep(records, grant)
            if at % PIECE == 0:
                yield
        return complete


Again = Callable[[Attempt[W], int], Steps[Attempt[W]]]  # an attempt in place of that one, of at most so many bytes


class FetchReading:
    def __init__(
        self, host: ReplicaHost, off_loop: OffLoop, max_bytes: int, hints: LeaderHints, budget: ReplyBudget
    ) -> None:
        self._host = host
        self._off_loop = off_loop
        self._max_bytes = max_bytes
        self._hints = hints
        self._budget = budget
        self.pieces = Pieces()

    def read(
        self, plan: FetchPlan[W], max_bytes: int, reader: PartitionReader[W], wait: Wait | None = None
    ) -> Steps[Attempt[W]]:
        """One pass over the partitions. The first batch goes out whole, even beyond the limits (KIP-74). Each partition
        that was read is entered in the `wait`, so that nothing is missed that comes during a long pass."""
        attempt = Attempt(plan, reader)
        left = min(max_bytes, self._max_bytes)
        for at, wanted in enumerate(plan.wanted):
            if at and at % PIECE == 0:
                yield
            room = max(0, min(wanted.max_bytes, left - attempt.size))
            try:
                view = self._view(wanted) if reader.sees_views else None
                if view is not None:
                    partition, read = self._read_view(wanted, view, reader)
                    attempt.add(read)
                else:
                    partition = self._find(wanted, reader)
                    attempt.add(reader.read(wanted, partition, room, at_least_one=attempt.size == 0))
                if wait is not None:
                    wait.enter(partition)
            except KafkaError as error:
                # Its code alone: a kept exception keeps its frames, and they keep the attempt that keeps it.
                attempt.add(PartitionRead(wanted, None, error=error.code))
        return attempt

    def _view(self, wanted: W) -> TopicImage | None:
        return self._host.view(wanted.topic if wanted.topic_id is None else wanted.topic_id)

    def _read_view(self, wanted: W, view: TopicImage, reader: PartitionReader[W]) -> tuple[Partition, PartitionRead[W]]:
        """Whether it can be read here; what it delivers comes later."""
        reader.check(view.name)
        partition = self._host.find_base(view, wanted.index)
        if view.shows_pending:
            partition.check_leader(wanted.leader_epoch)  # and nobody is sent to a follower
        read = None if view.shows_pending else reader.admit(wanted, partition)
        if read is None:
            if not first_offset(view, partition) <= wanted.offset <= partition.log.end_offset:
                raise KafkaError(ErrorCode.offset_out_of_range)
            read = PartitionRead(wanted, partition, EMPTY)
        read.view = view
        return partition, read

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

    def answer(self, attempt: Attempt[W], again: Again[W]) -> Steps[Answer]:
        """The response; `again` reads anew if that has to wait, or to be shorter."""
        grant = None
        if attempt.size > FREE_BYTES:
            grant = self._budget.take(attempt.size, attempt.caller)
            if grant is None:
                return self._answer_later(attempt, again)
        return (yield from self._answer(attempt, grant))

    def _answer(self, attempt: Attempt[W], grant: Grant | None) -> Steps[Answer]:
        if attempt.size <= AT_ONCE_BYTES and (yield from attempt.load_cached(grant)):
            return (yield from self.response(attempt))
        # What has begun to load counts until it is there, even if nobody waits for it any more.
        return asyncio.shield(asyncio.ensure_future(self._load(attempt, grant)))

    async def _answer_later(self, attempt: Attempt[W], again: Again[W]) -> Message:
        """With what there is room for, or when it is this connection's turn."""
        room = max(SMALL_BYTES, self._budget.free_bytes)
        attempt = await self.pieces.finish(again(attempt, room))
        grant = self._budget.take(attempt.size, attempt.caller, least=True)
        if grant is None:
            grant = await self._budget.wait(attempt.size, attempt.caller)
            attempt = await self.pieces.finish(again(attempt, grant.size))  # the world has moved on
        return await settled(await self.pieces.finish(self._answer(attempt, grant)))

    async def _load(self, attempt: Attempt[W], grant: Grant | None) -> Message:
        for reads in _portions(attempt.unloaded):
            found = await self._off_loop(partial(_load_all, [slice_ for _, slice_ in reads]))
            for (read, _), records in zip(reads, found, strict=True):
                read.keep(records, grant)
        return await self.pieces.finish(self.response(attempt))

    def response(self, attempt: Attempt[W]) -> Steps[Message]:
        """Of an attempt whose records are all loaded."""
        plan, topics = attempt.plan, list[Message]()
        response = Message(session_id=plan.session_id, responses=topics, node_endpoints=[])
        last_name: object = topics
        for at, read in enumerate(attempt.reads):
            if at and at % PIECE == 0:
                yield
            wanted = read.wanted
            answer = _refused(read) if read.partition is None else _served(read, read.partition, attempt)
            if answer is None:
                continue
            name = (wanted.topic, wanted.topic_id)
            if name != last_name:
                topics.append(Message(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[]))
                last_name = name
            topics[-1].partitions.append(answer)
            if read.error in _LEADER_IS_NEWS:
                self._hints.point(attempt.caller.peer, wanted.topic_id or wanted.topic, wanted.index, answer, response)
            if plan.session is not None and read.records:
                plan.session.served(wanted)
        return response


def first_offset(view: TopicImage, partition: Partition) -> int:
    """Where a view of this partition starts. What is pending keeps its id when retention passes it, so there may be
    something before the log's start."""
    return 0 if view.shows_pending else partition.log.start_offset


def _portions(unloaded: Iterable[tuple[PartitionRead[W], Slice]]) -> Iterator[list[tuple[PartitionRead[W], Slice]]]:
    """What is loaded in one go: a good deal of bytes, and not too many partitions."""
    portion, size = list[tuple[PartitionRead[W], Slice]](), 0
    for read, slice_ in unloaded:
        portion.append((read, slice_))
        size += slice_.size
        if size >= AT_ONCE_BYTES or len(portion) == PIECE:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _load_all(slices: Sequence[Slice]) -> list[Buffer]:
    return [slice_.load() for slice_ in slices]


def _refused(read: PartitionRead[W]) -> Message:
    code = read.error if read.error is not None else ErrorCode.unknown_server_error
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
        log_start_offset=start if read.view is None else first_offset(read.view, partition),
        aborted_transactions=_aborted_of(read, partition) if attempt.stable else None,
        preferred_read_replica=read.preferred,
        records=read.records,
    )
    if read.diverging is not None:
        answer.diverging_epoch = Message(epoch=read.diverging[0], end_offset=read.diverging[1])
    return answer


def _aborted_of(read: PartitionRead[W], partition: Partition) -> list[Message]:
    """A view leaves their records out itself."""
    return [] if read.view is not None else _aborted(partition, read.wanted.offset, read.records)


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
