"""OffsetFetch, v1 to v10: how far a group has read.

A partition without a committed offset returns -1 and no error; while the coordinator is loading, the error is
COORDINATOR_LOAD_IN_PROGRESS, never -1. v2 adds "all topics" (null) and an error for the whole group (v1 has it on each
partition), v5 the leader epoch, v7 `require_stable` (UNSTABLE_OFFSET_COMMIT if an open transaction may change the
offset; the client retries), v8 many groups in one request, v9 the member's id and epoch (checked for members of
consumer groups), v10 topic ids.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable

from msgspec import Struct

from headrace.api.contract import Request, Steps
from headrace.api.pieces import Pace, in_turns
from headrace.coordinators.groups.commands import UNSTABLE, CommittedOffset, FetchOffsets
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.coordinators.groups.offsets import Topics
from headrace.model.image import ClusterImage
from headrace.model.topic_partition import TopicPartition
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message

_Found = dict[TopicPartition, CommittedOffset]
_NOTHING = CommittedOffset(-1, -1, "", -1, uuid.UUID(int=0))


class OffsetFetch:
    def __init__(self, groups: GroupCoordinator, topics: Topics) -> None:
        self._groups = groups
        self._topics = topics

    def __call__(self, request: Request) -> Steps[Awaitable[Steps[Message]]]:
        many, image, stable = request.version >= 8, self._topics.image(), request.body.require_stable
        asked, pace = list[tuple[_Asked, asyncio.Future[_Found | ErrorCode]]](), Pace()
        for part in request.body.groups if many else [request.body]:
            group = _Asked(part, image, request.version)
            asked.append((group, self._groups.submit(group.command(stable))))
            if pace.is_over(group.size):
                yield
        return _fetched(asked, many)


class _Asked:
    """One group of the request: the requested offsets, and their form in the response."""

    def __init__(self, part: Message, image: ClusterImage, version: int) -> None:
        self.group_id: str = part.group_id
        self._member: tuple[str | None, int] = (part.member_id, part.member_epoch) if version >= 9 else (None, -1)
        self._image = image
        self._version = version
        self._topics = None if part.topics is None else [_asked_topic(topic, image, version) for topic in part.topics]

    @property
    def size(self) -> int:
        return 1 + sum(1 + len(topic.partitions) for topic in self._topics or ())

    def command(self, require_stable: bool) -> FetchOffsets:
        return FetchOffsets(self.group_id, self._places(), require_stable, *self._member)

    def _places(self) -> tuple[TopicPartition, ...] | None:
        if self._topics is None:
            return None
        known = [topic for topic in self._topics if topic.known]
        return tuple(TopicPartition(topic.name, index) for topic in known for index in topic.partitions)

    def found(self, offsets: _Found, pace: Pace) -> Steps[Message]:
        if self._topics is None:
            topics = yield from self._all_topics(offsets, pace)
        else:
            topics = []
            for topic in self._topics:
                topics.append((yield from topic.found(offsets, pace)))
        return Message(group_id=self.group_id, topics=topics, error_code=ErrorCode.none)

    def _all_topics(self, offsets: _Found, pace: Pace) -> Steps[list[Message]]:
        topics: dict[str, Message] = {}
        for (name, index), committed in offsets.items():
            if pace.is_over():
                yield
            known = self._image.topics.get(name)
            if known is None and self._version >= 10:
                continue  # it has no id, and this version has no names
            topic_id = known.id if known is not None else None
            topic = topics.setdefault(name, Message(name=name, topic_id=topic_id, partitions=[]))
            topic.partitions.append(_found(index, committed))
        return list(topics.values())

    def refused(self, code: ErrorCode) -> Message:
        on_partitions = self._topics or [] if self._version < 2 else []
        return Message(group_id=self.group_id, topics=[topic.refused(code) for topic in on_partitions], error_code=code)


class _AskedTopic(Struct, frozen=True):
    name: str
    id: uuid.UUID | None
    known: bool  # False: no topic has this id
    partitions: list[int]

    def found(self, offsets: _Found, pace: Pace) -> Steps[Message]:
        if not self.known:
            return self.refused(ErrorCode.unknown_topic_id)
        partitions = []
        for index in self.partitions:
            partitions.append(_found(index, offsets.get(TopicPartition(self.name, index), _NOTHING)))
            if pace.is_over():
                yield
        return Message(name=self.name, topic_id=self.id, partitions=partitions)

    def refused(self, code: ErrorCode) -> Message:
        partitions = [_partition(index, _NOTHING, code) for index in self.partitions]
        return Message(name=self.name, topic_id=self.id, partitions=partitions)


def _asked_topic(asked: Message, image: ClusterImage, version: int) -> _AskedTopic:
    if version < 10:
        return _AskedTopic(asked.name, None, True, asked.partition_indexes)
    topic = image.topics_by_id.get(asked.topic_id)
    name = topic.name if topic is not None else ""
    return _AskedTopic(name, asked.topic_id, topic is not None, asked.partition_indexes)


def _found(index: int, committed: CommittedOffset) -> Message:
    unstable = committed is UNSTABLE
    return _partition(index, committed, ErrorCode.unstable_offset_commit if unstable else ErrorCode.none)


def _partition(index: int, committed: CommittedOffset, error: ErrorCode) -> Message:
    return Message(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=error,
    )


async def _fetched(asked: list[tuple[_Asked, asyncio.Future[_Found | ErrorCode]]], many: bool) -> Steps[Message]:
    found = list[tuple[_Asked, _Found | ErrorCode]]()
    async for group, fetched in in_turns(asked):
        try:
            found.append((group, await fetched))
        except KafkaError as error:
            found.append((group, error.code))
    return _answer(found, many)


def _answer(found: list[tuple[_Asked, _Found | ErrorCode]], many: bool) -> Steps[Message]:
    groups, pace = list[Message](), Pace()
    for group, offsets in found:
        if isinstance(offsets, ErrorCode):
            groups.append(group.refused(offsets))
        else:
            groups.append((yield from group.found(offsets, pace)))
        if pace.is_over():
            yield
    return Message(groups=groups) if many else groups[0]
