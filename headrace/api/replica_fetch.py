"""Fetch by replicas: what other brokers pull from the partitions led here.

A broker follows thousands of partitions, and few of them have news at a time. So a replica's session keeps a list of
those that have: a partition notifies the sessions that watch it of an append, of a commit and of the end of its
leadership, and a fetch looks only at these partitions and at those that it mentions. What a fetch mentions says what
the replica has. That is noted before anything is read, since it is how records become committed.

There is one session for each replica: a broker that opens another one ends it, and a fetch that still waits in it is
answered with nothing. Called by fetch.py; the way from partitions to the response is in fetch_reading.py. A replica
first mentions all partitions that it follows, so mentioning and looking go in pieces (pieces.py). Invariants: news that
did not go out, for want of room, is still in the list for the next fetch; and news that comes during a look leads to
another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from headrace.api.contract import Caller, Reply, Request, Steps
from headrace.api.fetch_reading import Attempt, FetchReading, PartitionRead, diverging
from headrace.api.fetch_sessions import FetchPlan, Key, WantedPartition
from headrace.api.gate import Gate
from headrace.api.pieces import PIECE, Answer, settled
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.world.clock import Clock
from headrace.world.entropy import Entropy

_LAST = 2**31 - 1


class WatchedPartition(WantedPartition):
    """One partition that a replica follows."""

    __slots__ = ("_noted", "_partition", "_session", "_start")

    def __init__(self, topic: Message, partition: Message, session: ReplicaSession) -> None:
        super().__init__(topic, partition)
        self._session = session
        self._partition: Partition | None = None

    def ask(self, partition: Message) -> None:
        super().ask(partition)
        self._start: int = partition.log_start_offset
        self._noted = False

    def note(self, partition: Partition, replica_id: int, replica_epoch: int) -> None:
        """Tell the partition what the replica has, once for each request that says so."""
        if not self._noted:
            partition.replica_fetched(replica_id, replica_epoch, self.offset, self._start)
            self._noted = True

    def notify(self) -> None:
        self._session.add_news(self)

    def notify_high_watermark(self) -> None:
        self._session.high_watermark_due = True
        self._session.add_news(self)

    def watch(self, host: ReplicaHost) -> None:
        """Be notified by the partition as it is hosted now; by none if there is none."""
        try:
            hosted = host.find_by_id(self.topic_id, self.index)
        except KafkaError:
            hosted = None
        if hosted is not self._partition:
            self.leave()
            self._partition = hosted
            if hosted is not None:
                hosted.readers.watch(self)

    def leave(self) -> None:
        if self._partition is not None:
            self._partition.readers.unwatch(self)
            self._partition = None


class ReplicaSession:
    """What one replica follows, and which of it has news."""

    def __init__(self, session_id: int, replica_epoch: int) -> None:
        self.id = session_id
        self.replica_epoch = replica_epoch
        self.next_epoch = 1
        self.news: dict[WatchedPartition, None] = {}  # in the order in which they are read
        self.high_watermark_due = False  # one that moved is worth an answer by now
        self.ended = False
        self._missed_news = False  # it came during a look
        self._woken: asyncio.Future[None] | None = None
        self._watched: dict[Key, WatchedPartition] = {}

    def mention(self, body: Message, host: ReplicaHost) -> Steps[None]:
        for at, (topic, partition) in enumerate(_mentioned(body.topics)):
            if at and at % PIECE == 0:
                yield
                if self.ended:
                    return
            key = (topic.topic_id, partition.partition)
            known = self._watched.get(key)
            if known is None:
                known = self._watched[key] = WatchedPartition(topic, partition, self)
            else:
                known.ask(partition)
            known.watch(host)
            self.news[known] = None
        for topic in body.forgotten_topics_data:
            for index in topic.partitions:
                forgotten = self._watched.pop((topic.topic_id, index), None)
                if forgotten is not None:
                    forgotten.leave()
                    self.news.pop(forgotten, None)

    def take_news(self) -> list[WatchedPartition]:
        """For a look."""
        news, self.news = self.news, {}
        self._missed_news = False
        return list(news)

    def add_news(self, watched: WatchedPartition) -> None:
        self.news[watched] = None
        self.wake()

    def served(self, wanted: WatchedPartition) -> None:
        """It is last in the list anyway when it has news again."""

    def rest(self) -> asyncio.Future[None]:
        """Done when there is news since the last look began. Called right after it, before anything else can run."""
        self._woken = asyncio.get_running_loop().create_future()
        if self._missed_news or self.ended:
            self._woken.set_result(None)
        return self._woken

    def wake(self) -> None:
        self._missed_news = True
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def end(self) -> None:
        self.ended = True
        for watched in self._watched.values():
            watched.leave()
        self._watched.clear()
        self.news.clear()
        self.wake()


class ReplicaReader:
    """How a replica reads: everything that is stored at the leader."""

    __slots__ = ("_gate", "caller", "epoch", "id", "stable")

    sees_views = False

    def __init__(self, replica_id: int, replica_epoch: int, caller: Caller, gate: Gate) -> None:
        self.id = replica_id
        self.epoch = replica_epoch
        self.caller = caller
        self.stable = False
        self._gate = gate

    def admit(self, wanted: WatchedPartition, partition: Partition) -> PartitionRead[WatchedPartition] | None:
        return None

    def check(self, topic: str) -> None:
        self._gate.check_replica(self.caller, topic)

    def read(
        self, wanted: WatchedPartition, partition: Partition, max_bytes: int, *, at_least_one: bool
    ) -> PartitionRead[WatchedPartition]:
        partition.check_leader(wanted.leader_epoch)
        wanted.note(partition, self.id, self.epoch)
        parted = diverging(wanted, partition)
        if parted is not None:
            return parted
        found = partition.read_as_replica(self.id, wanted.offset, max_bytes, at_least_one=at_least_one)
        return PartitionRead(wanted, partition, found)


class ReplicaFetch:
    def __init__(self, reading: FetchReading, host: ReplicaHost, gate: Gate, clock: Clock, entropy: Entropy) -> None:
        self._reading = reading
        self._host = host
        self._gate = gate
        self._clock = clock
        self._entropy = entropy
        self._sessions: dict[int, ReplicaSession] = {}

    def __call__(self, request: Request, replica_id: int) -> Reply:
        return self._reading.pieces.begin(self._serve(request, replica_id))

    def _serve(self, request: Request, replica_id: int) -> Steps[Answer]:
        body = request.body
        reader = ReplicaReader(replica_id, body.replica_state.replica_epoch, request.caller, self._gate)
        try:
            session = self._session(body, reader)
        except KafkaError as error:
            return Message(error_code=error.code)
        yield from session.mention(body, self._host)
        answer = yield from self._look(session, body.max_bytes, reader, is_last=body.max_wait_ms <= 0)
        return answer if answer is not None else self._wait(session, session.rest(), body, reader)

    def _session(self, body: Message, reader: ReplicaReader) -> ReplicaSession:
        session = self._sessions.get(reader.id)
        if session is not None and reader.epoch < session.replica_epoch:
            raise KafkaError(ErrorCode.stale_broker_epoch)
        if body.session_epoch <= 0:
            if session is not None:
                session.end()
            session = ReplicaSession(self._entropy.integer(1, _LAST), reader.epoch)
            self._sessions[reader.id] = session
            return session
        if session is None or session.id != body.session_id or session.replica_epoch != reader.epoch:
            # A broker that has registered again must say again what it has: what it said came from its earlier start.
            raise KafkaError(ErrorCode.fetch_session_id_not_found)
        if body.session_epoch != session.next_epoch:
            raise KafkaError(ErrorCode.invalid_fetch_session_epoch)
        session.next_epoch = 1 if session.next_epoch == _LAST else session.next_epoch + 1
        return session

    def _look(
        self, session: ReplicaSession, max_bytes: int, reader: ReplicaReader, *, is_last: bool
    ) -> Steps[Answer | None]:
        """The response, if there is news or no time left; else None."""

        def again(attempt: Attempt[WatchedPartition], room: int) -> Steps[Attempt[WatchedPartition]]:
            session.news = dict.fromkeys(read.wanted for read in attempt.reads) | session.news  # nothing went out
            return self._read(session, min(max_bytes, room), reader)

        attempt = yield from self._read(session, max_bytes, reader)
        unsent = list(attempt.unsent)
        if is_last or attempt.urgent or attempt.size or (session.high_watermark_due and unsent):
            session.high_watermark_due = False
            return (yield from self._reading.answer(attempt, again))
        for partition in unsent:  # nothing but that: soon, for by then there may be more to send
            partition.readers.notify_high_watermark_soon()
        return None

    def _read(self, session: ReplicaSession, max_bytes: int, reader: ReplicaReader) -> Steps[Attempt[WatchedPartition]]:
        plan = FetchPlan(session.take_news(), session, True)
        attempt = yield from self._reading.read(plan, max_bytes, reader)
        session.news |= dict.fromkeys(attempt.left_over)
        return attempt

    async def _wait(
        self, session: ReplicaSession, woken: asyncio.Future[None], body: Message, reader: ReplicaReader
    ) -> Message:
        """Until there is news worth a response, or the timeout has passed. `woken` was made before this began to run:
        otherwise news in between would be lost."""
        deadline_s = self._clock.monotonic() + body.max_wait_ms / 1000
        while True:
            left_s = deadline_s - self._clock.monotonic()
            timer = self._clock.call_later(max(0.0, left_s), session.wake)
            try:
                await woken
            finally:
                timer.cancel()
            is_last = self._clock.monotonic() >= deadline_s or self._sessions.get(reader.id) is not session
            answer = await self._reading.pieces.finish(self._look(session, body.max_bytes, reader, is_last=is_last))
            if answer is not None:
                return await settled(answer)
            woken = session.rest()


def _mentioned(topics: Iterable[Message]) -> Iterator[tuple[Message, Message]]:
    for topic in topics:
        for partition in topic.partitions:
            yield topic, partition
