"""Share sessions: what each member of a share group fetches from this broker, and which of its requests comes next.

A session belongs to a group and a member. Its requests are numbered, ShareFetch and ShareAcknowledge alike: 0 opens it,
or opens it anew, -1 closes it, and otherwise the number must be the next one; after the largest comes 1. It ends with
the connection that it was used on last; a connection that the member has left before ends nothing. Every partition that
a request names is fetched until it is forgotten.

When it ends, what the member holds is released at once. When it is opened anew, it is not.

What sessions remember is bounded, in sessions and in partitions of all of them. One that grows beyond that ends, and
its member is told so.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator

from headrace.api.contract import Caller, Steps
from headrace.api.pieces import Pace
from headrace.replicas.share.live_partitions import LivePartitions
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message

FIRST_EPOCH, LAST_EPOCH = 0, -1
_HIGHEST_EPOCH = 2**31 - 1

Place = tuple[uuid.UUID, int]


class ShareSession:
    __slots__ = ("caller", "epoch", "group", "member", "places")

    def __init__(self, group: str, member: str, caller: Caller) -> None:
        self.group = group
        self.member = member
        self.caller = caller
        self.epoch = FIRST_EPOCH  # of its last request
        self.places: dict[Place, None] = {}  # topic id and partition

    def forget(self, body: Message) -> list[Place]:
        """It names these for the last time; those that it had named."""
        named = [
            (topic.topic_id, index)
            for topic in body.forgotten_topics_data
            for index in topic.partitions
            if (topic.topic_id, index) in self.places
        ]
        for place in named:
            self.places.pop(place, None)
        return named

    def rotated(self) -> list[Place]:
        """Another one comes first in each request, so that the limits of a request starve none."""
        places = list(self.places)
        turn = self.epoch % len(places) if places else 0
        return places[turn:] + places[:turn]


class ShareSessions:
    def __init__(self, live: LivePartitions, slots: int = 2000, most_places: int = 200_000) -> None:
        self.live = live
        self._slots = slots
        self._most_places = most_places
        self._places = 0
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._by_caller: dict[Caller, dict[tuple[str, str], None]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ShareSession]:
        return iter(self._sessions.values())

    def open(self, group: str, member: str, caller: Caller) -> ShareSession:
        """A new one; KafkaError if there are too many."""
        key = (group, member)
        if key not in self._sessions and len(self._sessions) >= self._slots:
            raise KafkaError(ErrorCode.share_session_limit_reached, f"{self._slots} share sessions are open")
        self._drop(key)
        session = self._sessions[key] = ShareSession(group, member, caller)
        self._by_caller.setdefault(caller, {})[key] = None
        return session

    def go_on(self, group: str, member: str, epoch: int, caller: Caller) -> ShareSession:
        """The session, for its next request. With the last epoch it is closed, and the caller ends it."""
        session = self._sessions.get((group, member))
        if session is None:
            raise KafkaError(ErrorCode.share_session_not_found, f"{member} has no share session here")
        if epoch == LAST_EPOCH:
            self._drop((group, member))
            return session
        expected = 1 if session.epoch == _HIGHEST_EPOCH else session.epoch + 1
        if epoch != expected:
            raise KafkaError(
                ErrorCode.invalid_share_session_epoch, f"session epoch {epoch} of {member}, expected {expected}"
            )
        session.epoch = epoch
        if session.caller is not caller:
            self._move(session, caller)
        return session

    def name(self, session: ShareSession, body: Message) -> Steps[None]:
        """A request names these partitions. KafkaError if there are too many; then the session has ended."""
        key, pace = (session.group, session.member), Pace()
        for topic in body.topics:
            for partition in topic.partitions:
                if topic.topic_id is not None:
                    place = (topic.topic_id, partition.partition_index)
                    if place not in session.places:
                        session.places[place] = None
                        self._places += self._sessions.get(key) is session
                if pace.is_over():
                    yield
            if self._places > self._most_places and self._sessions.get(key) is session:
                self._drop(key)
                self.end(session)
                raise KafkaError(ErrorCode.share_session_limit_reached, "share sessions have too many partitions")

    def forget(self, session: ShareSession, body: Message) -> None:
        """A request names these partitions for the last time."""
        named = session.forget(body)
        self._places -= len(named)
        self.release(session, named)

    def left(self, caller: Caller) -> None:
        """A connection is gone, and its sessions end with it."""
        for session in [self._sessions[key] for key in self._by_caller.get(caller, {})]:
            self._drop((session.group, session.member))
            self.end(session)

    def end(self, session: ShareSession) -> None:
        """It is closed: others may have what its member holds."""
        self.release(session, session.places)
        if all(other.group != session.group for other in self._sessions.values()):
            self.live.group_left(session.group)

    def release(self, session: ShareSession, places: Iterable[Place]) -> None:
        """What the member holds of these partitions."""
        for topic_id, index in places:
            live = self.live.find(session.group, topic_id, index)
            if live is not None:
                live.leave(session.member)

    def _move(self, session: ShareSession, caller: Caller) -> None:
        key = (session.group, session.member)
        self._leave(session.caller, key)
        session.caller = caller
        self._by_caller.setdefault(caller, {})[key] = None

    def _drop(self, key: tuple[str, str]) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            self._places -= len(session.places)
            self._leave(session.caller, key)

    def _leave(self, caller: Caller, key: tuple[str, str]) -> None:
        keys = self._by_caller.get(caller, {})
        keys.pop(key, None)
        if not keys:
            self._by_caller.pop(caller, None)
