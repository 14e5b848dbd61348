"""Fetch sessions (KIP-227): a client that polls many partitions names them once, later only what changed.

Epochs number the requests of a session, so that a lost reply is noticed: 0 opens one, -1 closes it, and a session id
of 0 with epoch -1 asks for none. The store is bounded; when it is full, the session that has been idle longest is
dropped if it has been idle for two minutes, and otherwise the client gets no session. A session without partitions
ends, and its client is told so by session id 0.

Here are the sessions of consumers, and the nouns that all fetches share. Called by fetch.py; replicas have sessions of
another kind (replica_fetch.py).
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.world.clock import Clock
from headrace.world.entropy import Entropy

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

    def __init__(self, session_id: int, by_id: bool, now: float) -> None:
        self.id = session_id
        self.by_id = by_id
        self.next_epoch = 1
        self.last_used = now
        self.wanted: OrderedDict[Key, WantedPartition] = OrderedDict()

    def update(self, body: Message) -> None:
        for key, topic, partition in _asked(body, self.by_id):
            known = self.wanted.get(key)
            if known is None:
                self.wanted[key] = WantedPartition(topic, partition)
            else:
                known.ask(partition)
        for topic in body.forgotten_topics_data:
            name = topic.topic_id if self.by_id else topic.topic
            for index in topic.partitions:
                self.wanted.pop((name, index), None)

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
    def __init__(self, clock: Clock, entropy: Entropy, slots: int) -> None:
        self._clock = clock
        self._entropy = entropy
        self._slots = slots
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # longest idle first

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, body: Message, version: int) -> FetchPlan[WantedPartition]:
        by_id = version >= 13
        if body.session_epoch in (_FIRST_EPOCH, _NO_EPOCH):
            if body.session_id:
                self._sessions.pop(body.session_id, None)
            wanted = [WantedPartition(topic, partition) for _, topic, partition in _asked(body, by_id)]
            session = self._open(by_id, wanted) if body.session_epoch == _FIRST_EPOCH and version >= 7 else None
            return FetchPlan(wanted, session, False)
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
        session.update(body)
        if not session.wanted:
            del self._sessions[session.id]
            return FetchPlan((), None, False)
        return FetchPlan(list(session.wanted.values()), session, True)

    def _open(self, by_id: bool, wanted: list[WantedPartition]) -> FetchSession | None:
        now = self._clock.monotonic()
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or oldest.last_used > now - _EVICT_AFTER_S:
                return None
            del self._sessions[oldest.id]
        session_id = self._entropy.integer(1, _LAST_EPOCH)
        while session_id in self._sessions:
            session_id = self._entropy.integer(1, _LAST_EPOCH)
        session = self._sessions[session_id] = FetchSession(session_id, by_id, now)
        for one in wanted:
            session.wanted[(one.topic_id if by_id else one.topic, one.index)] = one
        return session


def _asked(body: Message, by_id: bool) -> Iterator[tuple[Key, Message, Message]]:
    for topic in body.topics:
        name = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            yield (name, partition.partition), topic, partition
