"""Fetch by replicas: what other brokers pull from the partitions led here.

A broker follows thousands of partitions of which few have news at a time. So its session is kept by what is new: a
partition stirs the sessions that watch it when something is appended, committed or over, and a fetch looks only at
those that stirred, and at those that it mentions. What it mentions says what the replica has: that is noted before
anything is read, since it is how records become committed.

One session for each replica: a broker that comes anew gets a new one, and the fetch that still waits in the old one is
answered with nothing. Called by fetch.py, whose reading and answering it shares. What holds: what was not told, for
want of room, is still new the next time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator
from typing import TYPE_CHECKING, cast

from headrace.api.contract import Reply, Request
from headrace.api.fetch_sessions import FetchPlan, Key, Wanted
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.world.clock import Clock
from headrace.world.entropy import Entropy

if TYPE_CHECKING:
    from headrace.api.fetch import Fetch, Reader

_LAST = 2**31 - 1


class Watched(Wanted):
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
        """What the replica says of itself by asking for this; once."""
        if not self._noted:
            partition.replica_fetched(replica_id, replica_epoch, self.offset, self._start)
            self._noted = True

    def stir(self) -> None:
        self._session.stirred(self)

    def tell(self) -> None:
        self._session.to_tell = True
        self._session.stirred(self)

    def watch(self, host: ReplicaHost) -> None:
        """Be told by the partition as it is hosted now; by none if there is none."""
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
    def __init__(self, session_id: int, replica_epoch: int) -> None:
        self.id = session_id
        self.replica_epoch = replica_epoch
        self.next_epoch = 1
        self.news: dict[Watched, None] = {}  # in the order in which they get their turn
        self.to_tell = False  # of high watermarks that moved
        self._woken: asyncio.Future[None] | None = None
        self._watched: dict[Key, Watched] = {}

    def mention(self, body: Message, host: ReplicaHost) -> None:
        for topic, partition in _mentioned(body.topics):
            key = (topic.topic_id, partition.partition)
            known = self._watched.get(key)
            if known is None:
                known = self._watched[key] = Watched(topic, partition, self)
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

    def stirred(self, watched: Watched) -> None:
        self.news[watched] = None
        self.wake()

    def served(self, wanted: Wanted) -> None:
        """Who has got records stands last when there is news of it again."""

    def rest(self) -> asyncio.Future[None]:
        """Done when there is news from now on. Called right after a look, before anybody else has his turn."""
        self._woken = asyncio.get_running_loop().create_future()
        return self._woken

    def wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def end(self) -> None:
        for watched in self._watched.values():
            watched.leave()
        self._watched.clear()
        self.news.clear()
        self.wake()


class ReplicaFetch:
    def __init__(self, fetch: Fetch, host: ReplicaHost, clock: Clock, entropy: Entropy) -> None:
        self._fetch = fetch
        self._host = host
        self._clock = clock
        self._entropy = entropy
        self._sessions: dict[int, ReplicaSession] = {}

    def __call__(self, request: Request, reader: Reader) -> Reply:
        body = request.body
        try:
            session = self._session(body, reader)
        except KafkaError as error:
            return Message(error_code=error.code)
        session.mention(body, self._host)
        answer = self._look(session, body.max_bytes, reader, is_last=body.max_wait_ms <= 0)
        return answer if answer is not None else self._wait(session, session.rest(), body, reader)

    def _session(self, body: Message, reader: Reader) -> ReplicaSession:
        session = self._sessions.get(reader.replica_id)
        if session is not None and reader.replica_epoch < session.replica_epoch:
            raise KafkaError(ErrorCode.stale_broker_epoch)
        if body.session_epoch <= 0:
            if session is not None:
                session.end()
            session = ReplicaSession(self._entropy.integer(1, _LAST), reader.replica_epoch)
            self._sessions[reader.replica_id] = session
            return session
        if session is None or session.id != body.session_id or session.replica_epoch != reader.replica_epoch:
            # A broker that registered anew has to say again what it has: what it said before was of its earlier start.
            raise KafkaError(ErrorCode.fetch_session_id_not_found)
        if body.session_epoch != session.next_epoch:
            raise KafkaError(ErrorCode.invalid_fetch_session_epoch)
        session.next_epoch = 1 if session.next_epoch == _LAST else session.next_epoch + 1
        return session

    def _look(self, session: ReplicaSession, max_bytes: int, reader: Reader, *, is_last: bool) -> Reply:
        """The answer, if there is something to tell or no more time; else None."""
        news, session.news = session.news, {}
        attempt = self._fetch.read(FetchPlan(list(news), session, True), max_bytes, reader)
        session.news |= {watched: None for watched in attempt.left_over if isinstance(watched, Watched)}
        untold = list(attempt.untold)
        if is_last or attempt.urgent or attempt.size or (session.to_tell and untold):
            session.to_tell = False
            return self._fetch.answer(attempt)
        for partition in untold:  # nothing but that: soon, for by then there may be more to say
            partition.readers.tell_watchers_soon()
        return None

    async def _wait(
        self, session: ReplicaSession, woken: asyncio.Future[None], body: Message, reader: Reader
    ) -> Message:
        """Until there is news worth an answer, or time is up. `woken` is from before this began to run."""
        deadline_s = self._clock.monotonic() + body.max_wait_ms / 1000
        while True:
            left_s = deadline_s - self._clock.monotonic()
            timer = self._clock.call_later(max(0.0, left_s), session.wake)
            try:
                await woken
            finally:
                timer.cancel()
            is_last = self._clock.monotonic() >= deadline_s or self._sessions.get(reader.replica_id) is not session
            answer = self._look(session, body.max_bytes, reader, is_last=is_last)
            if answer is not None:
                return answer if isinstance(answer, Message) else await cast("Awaitable[Message]", answer)
            woken = session.rest()


def _mentioned(topics: Iterable[Message]) -> Iterator[tuple[Message, Message]]:
    for topic in topics:
        for partition in topic.partitions:
            yield topic, partition
