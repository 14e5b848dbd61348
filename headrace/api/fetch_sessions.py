"""Fetch sessions (KIP-227): a client that polls many partitions names them once, later only what changed.

Epochs number the requests of a session, so that a lost reply is noticed: 0 opens one, -1 closes it, and a session id
of 0 with epoch -1 asks for none. A session without partitions ends, and its client is told so by session id 0.

What sessions remember is bounded, in sessions and in partitions of all of them. When there is no room, the sessions
that have been idle longest are dropped, if they have been idle for two minutes; otherwise the client gets no session,
and names its partitions each time. A session that grows beyond the room ends, and its client is told to start over.

A partition that does not exist is remembered too, since it may come to exist: a client asks for a new topic before this
broker knows of it, and does not name it again. But a session with more than MOST_UNKNOWN of those ends.

Here are the sessions of consumers, and the nouns that all fetches share. Called by fetch.py; replicas have sessions of
another kind (replica_fetch.py). Requests may name very many partitions, so planning goes in pieces (pieces.py).
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from headrace.api.contract import Steps
from headrace.api.pieces import PIECE
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.world.clock import Clock
from headrace.world.entropy import Entropy

MOST_UNKNOWN = 1_000  # partitions of one session that do not exist

_EVICT_AFTER_S = 120.0
_FIRST_EPOCH, _NO_EPOCH, _LAST_EPOCH = 0, -1, 2**31 - 1

Key = tuple[str | uuid.UUID | None, int]


class WantedPartition:
    """One partition that a fetch asks for, and the high watermark and log start that its session was sent last."""

    __slots__ = (
        "index", "last_fetched_epoch", "leader_epoch", "max_bytes", "offset", "sent_end", "sent_start", "topic",
        "topic_id",
    )  # fmt: skip

    def __init__(self, topic: Message, partition: Message) -> None:
        self.topic: str = topic.topic
        self.topic_id: uuid.UUID | None = topic.topic_id
        self.index: int = partition.partition
        self.sent_end = -1
        self.sent_start = -1
        self.ask(partition)

    def ask(self, partition: Message) -> None:
        self.offset: int = partition.fetch_offset
        self.max_bytes: int = partition.partition_max_bytes
        self.leader_epoch: int = partition.current_leader_epoch
        self.last_fetched_epoch: int = partition.last_fetched_epoch


W = TypeVar("W", bound=WantedPartition)
_W_contra = TypeVar("_W_contra", bound=WantedPartition, contravariant=True)


class FetchSession:
    """The partitions of one client, in the order in which they are read."""

    def __init__(self, session_id: int, by_id: bool, now: float, wanted: OrderedDict[Key, WantedPartition]) -> None:
        self.id = session_id
        self.by_id = by_id
        self.next_epoch = 1
        self.last_used = now
        self.wanted = wanted

    def update(self, body: Message, most: int) -> Steps[None]:
        """What a request changes. Not finished if there are more than `most` partitions by then."""
        for _ in _name(self.wanted, body, self.by_id):
            if len(self.wanted) > most:
                return
            yield
        for at, key in enumerate(_forgotten(body, self.by_id), 1):
            self.wanted.pop(key, None)
            if at % PIECE == 0:
                yield

    def served(self, wanted: WantedPartition) -> None:
        """A partition that just gave records moves to the end, so that the byte limit starves none."""
        self.wanted.move_to_end((wanted.topic_id if self.by_id else wanted.topic, wanted.index))


class AnsweredSession(Protocol[_W_contra]):
    """A session, as its response needs it."""

    id: int

    def served(self, wanted: _W_contra) -> None:
        """The response has records of this partition."""
        ...


class FetchPlan(Generic[W]):
    """What one request asks for: its partitions, and the session it belongs to, if any."""

    __slots__ = ("incremental", "session", "wanted")

    def __init__(self, wanted: Sequence[W], session: AnsweredSession[W] | None, incremental: bool) -> None:
        self.wanted = wanted
        self.session = session
        self.incremental = incremental

    @property
    def session_id(self) -> int:
        return 0 if self.session is None else self.session.id


class FetchSessions:
    def __init__(self, clock: Clock, entropy: Entropy, slots: int, most_partitions: int) -> None:
        self._clock = clock
        self._entropy = entropy
        self._slots = slots
        self._most_partitions = most_partitions
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # longest idle first

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        return sum(len(session.wanted) for session in self._sessions.values())

    def plan(self, body: Message, version: int) -> Steps[FetchPlan[WantedPartition]]:
        by_id = version >= 13
        if body.session_epoch not in (_FIRST_EPOCH, _NO_EPOCH):
            return (yield from self._go_on(body, by_id))
        if body.session_id:
            self._sessions.pop(body.session_id, None)
        wanted: OrderedDict[Key, WantedPartition] = OrderedDict()
        yield from _name(wanted, body, by_id)
        named = list(wanted.values())
        session = self._open(by_id, wanted) if body.session_epoch == _FIRST_EPOCH and version >= 7 else None
        return FetchPlan(named, session, False)

    def _go_on(self, body: Message, by_id: bool) -> Steps[FetchPlan[WantedPartition]]:
        session = self._sessions.get(body.session_id)
        if session is None:
            raise KafkaError(ErrorCode.fetch_session_id_not_found)
        if body.session_epoch != session.next_epoch:
            raise KafkaError(ErrorCode.invalid_fetch_session_epoch)
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.fetch_session_topic_id_error)
        session.next_epoch = 1 if session.next_epoch == _LAST_EPOCH else session.next_epoch + 1
        session.last_used = self._clock.monotonic()
        self._sessions.move_to_end(session.id)
        before = len(session.wanted)
        yield from session.update(body, self._most_partitions)
        if len(session.wanted) > before and self.partitions > self._most_partitions:
            self._end(session)
            raise KafkaError(ErrorCode.fetch_session_id_not_found, "the session has grown too large")
        if not session.wanted:
            self._end(session)
            return FetchPlan((), None, False)
        return FetchPlan(list(session.wanted.values()), session, True)

    def found_unknown(self, plan: FetchPlan[WantedPartition], unknown: int) -> None:
        """So many partitions of the plan do not exist: a session that would remember too many of those ends, and its
        client is told so by session id 0."""
        if unknown > MOST_UNKNOWN and plan.session is not None:
            self._sessions.pop(plan.session.id, None)
            plan.session = None

    def _end(self, session: FetchSession) -> None:
        self._sessions.pop(session.id, None)

    def _open(self, by_id: bool, wanted: OrderedDict[Key, WantedPartition]) -> FetchSession | None:
        now = self._clock.monotonic()
        if not self._make_room(len(wanted), now):
            return None
        session_id = self._entropy.integer(1, _LAST_EPOCH)
        while session_id in self._sessions:
            session_id = self._entropy.integer(1, _LAST_EPOCH)
        session = self._sessions[session_id] = FetchSession(session_id, by_id, now, wanted)
        return session

    def _make_room(self, partitions: int, now: float) -> bool:
        """For one session of so many partitions; only idle sessions make room."""
        if not self._slots or partitions > self._most_partitions:
            return False
        while len(self._sessions) >= self._slots or self.partitions + partitions > self._most_partitions:
            oldest = next(iter(self._sessions.values()))
            if oldest.last_used > now - _EVICT_AFTER_S:
                return False
            self._end(oldest)
        return True


def _name(wanted: OrderedDict[Key, WantedPartition], body: Message, by_id: bool) -> Steps[None]:
    """Add what a request names. Of a partition that it names twice the last one counts, as in a session."""
    at = 0
    for topic in body.topics:
        name = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            key = (name, partition.partition)
            known = wanted.get(key)
            if known is None:
                wanted[key] = WantedPartition(topic, partition)
            else:
                known.ask(partition)
            at += 1
            if at % PIECE == 0:
                yield


def _forgotten(body: Message, by_id: bool) -> Iterator[Key]:
    for topic in body.forgotten_topics_data:
        name = topic.topic_id if by_id else topic.topic
        for index in topic.partitions:
            yield name, index
