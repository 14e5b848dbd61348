"""Fetch, v4 to v18: committed bytes as they were produced.

Who reads with isolation level 1 (read_committed) gets what lies before the last stable offset, and a list of the
aborted transactions in it, by which the client leaves out their records.

Stage one reads. If that gives fewer than min_bytes and there is no more, the reply waits once, until enough has been
appended or max_wait has passed, and reads once more. Bytes that are not in memory are read off the event loop. The
first batch goes out whole even if it is larger than the limits (KIP-74).

Sessions: see fetch_sessions. From version 13 on topics are named by id. An unknown id is UNKNOWN_TOPIC_ID.
From version 16 on, who comes to the wrong broker or with an old epoch is told who leads (KIP-951, leader_hints).

A replica (replica_id >= 0) gets everything that is stored, committed or not; its sessions are in replica_fetch.

A consumer that says where it stands (rack_id, from version 11 on) is sent to an in-sync replica in the same place
(KIP-392), which serves it up to the high watermark that it has heard of. What lies beyond is OFFSET_NOT_AVAILABLE
there, never out of range.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from headrace.api.contract import Peer, Reply, Request
from headrace.api.fetch_sessions import FetchPlan, FetchSessions, Wanted
from headrace.api.leader_hints import LeaderHints
from headrace.api.replica_fetch import ReplicaFetch, Watched
from headrace.log.reading import Slice
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.replicas.waiters import Audience, Wait
from headrace.wire.batches import Buffer, walk
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.world.clock import Clock
from headrace.world.entropy import Entropy

READ_COMMITTED = 1
_LEADER_IS_NEWS = (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch)

OffLoop = Callable[[Callable[[], Buffer]], Awaitable[Buffer]]


class Fetch:
    def __init__(
        self,
        host: ReplicaHost,
        sessions: FetchSessions,
        clock: Clock,
        entropy: Entropy,
        off_loop: OffLoop,
        max_bytes: int,
        hints: LeaderHints,
    ) -> None:
        self._host = host
        self._replicas = ReplicaFetch(self, host, clock, entropy)
        self._sessions = sessions
        self._clock = clock
        self._off_loop = off_loop
        self._max_bytes = max_bytes
        self._hints = hints

    def __call__(self, request: Request) -> Reply:
        body = request.body
        reader = Reader(body, request.peer)
        if reader.is_replica:
            return self._replicas(request, reader)
        try:
            plan = self._sessions.plan(body, request.version)
        except KafkaError as error:
            return Message(error_code=error.code)
        attempt = self.read(plan, body.max_bytes, reader)
        missing_bytes = min(body.min_bytes, body.max_bytes) - attempt.size
        if attempt.urgent or missing_bytes <= 0 or body.max_wait_ms <= 0 or not plan.wanted or request.has_waited:
            return self.answer(attempt)
        return _LongPoll(self, attempt, body, missing_bytes).reply

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(self, plan: FetchPlan, max_bytes: int, reader: Reader) -> Attempt:
        """One pass over the partitions."""
        attempt = Attempt(plan, reader)
        left = min(max_bytes, self._max_bytes)
        for wanted in plan.wanted:
            try:
                partition = self._find(wanted)
                self._admit(partition, wanted, reader)
                if wanted.last_fetched_epoch >= 0:
                    diverging = partition.diverging(wanted.offset, wanted.last_fetched_epoch)
                    if diverging is not None:
                        attempt.add_diverging(wanted, partition, *diverging)
                        continue
                if reader.rack and partition.leads:
                    nearest = self._host.nearest(partition, reader.rack, wanted.offset)
                    if nearest is not None:
                        attempt.add_preferred(wanted, partition, nearest)
                        continue
                room, first = max(0, min(wanted.max_bytes, left)), attempt.size == 0
                if reader.is_replica:
                    slice_ = partition.read_as_replica(reader.replica_id, wanted.offset, room, at_least_one=first)
                else:
                    slice_ = partition.read(wanted.offset, room, at_least_one=first, stable=reader.stable)
                left -= slice_.size
                attempt.add(wanted, partition, slice_)
            except KafkaError as error:
                attempt.add_error(wanted, error)
        return attempt

    def _admit(self, partition: Partition, wanted: Wanted, reader: Reader) -> None:
        if reader.is_replica:
            partition.check_leader(wanted.leader_epoch)
            if isinstance(wanted, Watched):
                wanted.note(partition, reader.replica_id, reader.replica_epoch)
        elif reader.rack and not partition.leads:
            partition.check_follower(wanted.leader_epoch, wanted.offset)
        else:
            partition.check_leader(wanted.leader_epoch)

    def _find(self, wanted: Wanted) -> Partition:
        if wanted.topic_id is not None:
            return self._host.find_by_id(wanted.topic_id, wanted.index)
        if not wanted.topic:
            raise KafkaError(ErrorCode.unknown_topic_id)
        return self._host.find(wanted.topic, wanted.index)

    def answer(self, attempt: Attempt) -> Reply:
        if attempt.load_cached():
            return self._response(attempt)
        return self._load(attempt)

    async def _load(self, attempt: Attempt) -> Message:
        for found in attempt.found:
            if found.records is None and found.slice is not None:
                found.records = await self._off_loop(found.slice.load)
        return self._response(attempt)

    def _response(self, attempt: Attempt) -> Message:
        response = attempt.response()
        for wanted, answer in attempt.led_elsewhere:
            self._hints.point(attempt.reader.peer, wanted.topic_id or wanted.topic, wanted.index, answer, response)
        return response


class Reader:
    """Who asks, and what he may see."""

    __slots__ = ("audience", "peer", "rack", "replica_epoch", "replica_id")

    def __init__(self, body: Message, peer: Peer) -> None:
        self.peer = peer
        self.replica_id: int = max(body.replica_id, body.replica_state.replica_id)
        self.replica_epoch: int = body.replica_state.replica_epoch
        self.rack: str = "" if self.is_replica else body.rack_id
        stable = Audience.STABLE if body.isolation_level == READ_COMMITTED else Audience.COMMITTED
        self.audience = stable

    @property
    def is_replica(self) -> bool:
        return self.replica_id >= 0

    @property
    def stable(self) -> bool:
        return self.audience is Audience.STABLE


class _Found:
    """What one partition gave."""

    __slots__ = ("diverging", "error", "partition", "preferred", "records", "slice", "wanted")

    def __init__(self, wanted: Wanted, partition: Partition | None, slice_: Slice | None, error: KafkaError | None):
        self.wanted = wanted
        self.partition = partition
        self.slice = slice_
        self.error = error
        self.diverging: tuple[int, int] | None = None
        self.preferred = -1  # another replica, which the reader should ask instead
        self.records: Buffer | None = b"" if slice_ is None or slice_.size == 0 else None


class Attempt:
    """One pass over the partitions of a fetch."""

    __slots__ = ("found", "led_elsewhere", "plan", "reader", "size", "urgent")

    def __init__(self, plan: FetchPlan, reader: Reader) -> None:
        self.plan = plan
        self.reader = reader
        self.found: list[_Found] = []
        self.size = 0
        self.urgent = False  # an answer that must not wait
        self.led_elsewhere: list[tuple[Wanted, Message]] = []  # partitions whose readers look for the leader

    def add(self, wanted: Wanted, partition: Partition, slice_: Slice) -> None:
        self.found.append(_Found(wanted, partition, slice_, None))
        self.size += slice_.size
        self.urgent = self.urgent or slice_.more  # whole batches seldom fill the room, and waiting makes it no larger

    def add_error(self, wanted: Wanted, error: KafkaError) -> None:
        self.found.append(_Found(wanted, None, None, error))
        self.urgent = True

    def add_diverging(self, wanted: Wanted, partition: Partition, epoch: int, end_offset: int) -> None:
        found = _Found(wanted, partition, None, None)
        found.diverging = (epoch, end_offset)
        self.found.append(found)
        self.urgent = True

    def add_preferred(self, wanted: Wanted, partition: Partition, broker_id: int) -> None:
        found = _Found(wanted, partition, None, None)
        found.preferred = broker_id
        self.found.append(found)
        self.urgent = True

    @property
    def left_over(self) -> Iterator[Wanted]:
        """Partitions that have records for which there was no room, or that are held back."""
        for found in self.found:
            partition, wanted = found.partition, found.wanted
            empty = found.slice is not None and not found.slice.size
            if empty and partition is not None and wanted.offset < partition.log.end_offset:
                yield wanted

    @property
    def untold(self) -> Iterator[Partition]:
        """Partitions whose high watermark or start is not known to the reader."""
        for found in self.found:
            partition, told = found.partition, (found.wanted.told_end, found.wanted.told_start)
            if partition is not None and told != (partition.high_watermark, partition.log.start_offset):
                yield partition

    def load_cached(self) -> bool:
        """Take everything that is in memory; False if something is not."""
        complete = True
        for found in self.found:
            if found.records is None and found.slice is not None:
                found.records = found.slice.load_cached()
                complete = complete and found.records is not None
        return complete

    def response(self) -> Message:
        plan, topics = self.plan, list[Message]()
        last_name: object = topics
        for found in self.found:
            wanted = found.wanted
            answer = self._partition(found)
            if answer is None:
                continue
            name = (wanted.topic, wanted.topic_id)
            if name != last_name:
                topics.append(Message(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[]))
                last_name = name
            topics[-1].partitions.append(answer)
            if plan.session is not None and found.records:
                plan.session.served(wanted)
        return Message(session_id=plan.session_id, responses=topics, node_endpoints=[])

    def _partition(self, found: _Found) -> Message | None:
        """This partition's part of the response; None when a session's client knows it all already."""
        wanted, partition = found.wanted, found.partition
        if found.error is not None or partition is None:
            code = found.error.code if found.error is not None else ErrorCode.unknown_server_error
            wanted.told_end = -1
            answer = Message(partition_index=wanted.index, error_code=code, high_watermark=-1, records=b"")
            if code in _LEADER_IS_NEWS:
                self.led_elsewhere.append((wanted, answer))
            return answer
        end, start = partition.high_watermark, partition.log.start_offset
        known = end == wanted.told_end and start == wanted.told_start
        redirected = found.diverging is not None or found.preferred >= 0
        if self.plan.incremental and known and not found.records and not redirected:
            return None
        wanted.told_end, wanted.told_start = end, start
        partition.bytes_out += len(found.records or b"")
        answer = Message(
            partition_index=wanted.index,
            high_watermark=end,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=start,
            aborted_transactions=_aborted(partition, wanted.offset, found.records) if self.reader.stable else None,
            preferred_read_replica=found.preferred,
            records=found.records,
        )
        if found.diverging:
            answer.diverging_epoch = Message(epoch=found.diverging[0], end_offset=found.diverging[1])
        return answer


def _aborted(partition: Partition, offset: int, records: Buffer | None) -> list[Message]:
    """The aborted transactions that have something in these records."""
    if not records or not partition.log.aborted_txns:
        return []
    end = max((header.next_offset for _, header in walk(records)), default=offset)
    aborted = partition.log.aborted(offset, end)  # and not up to the end of the log: there may be very many
    return [Message(producer_id=producer_id, first_offset=first) for producer_id, first in aborted]


class _LongPoll:
    """A fetch that waits. It ends by enough bytes, by time, or because the client went away."""

    __slots__ = ("_attempt", "_fetch", "_max_bytes", "_wait", "reply")

    def __init__(self, fetch: Fetch, attempt: Attempt, body: Message, missing_bytes: int) -> None:
        self._fetch = fetch
        self._attempt = attempt
        self._max_bytes = body.max_bytes
        self.reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        partitions = [found.partition for found in attempt.found if found.partition is not None]
        audience, wait_s = attempt.reader.audience, body.max_wait_ms / 1000
        self._wait = Wait(partitions, audience, missing_bytes, wait_s, fetch._clock)
        self._wait.due.add_done_callback(self._resume)
        self.reply.add_done_callback(lambda _: self._wait.due.cancel())

    def _resume(self, _: object) -> None:
        if self.reply.done():
            return
        attempt = self._attempt
        if self._wait.in_vain and not attempt.size:  # nothing needs to be read again: most long polls end here
            self.reply.set_result(attempt.response())
            return
        answer = self._fetch.answer(self._fetch.read(attempt.plan, self._max_bytes, attempt.reader))
        if isinstance(answer, Message):
            self.reply.set_result(answer)
        elif answer is not None:
            loading = asyncio.ensure_future(answer)
            loading.add_done_callback(self._loaded)

    def _loaded(self, loading: asyncio.Future[Message]) -> None:
        if self.reply.done():
            return
        error = loading.exception()
        if error is not None:
            self.reply.set_exception(error)
        else:
            self.reply.set_result(loading.result())
