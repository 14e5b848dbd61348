"""OffsetCommit, v2 to v10: stores how far a group has read.

A member commits with its generation; a consumer that assigns its own partitions sends generation -1 and no member id,
which is allowed while the group has no members. v6 adds the leader epoch, v7 static members, v10 topic ids. v9 adds
consumer groups (KIP-848), whose members may not use a lower version, and GROUP_ID_NOT_FOUND in place of
ILLEGAL_GENERATION. `retention_time_ms` (v2 to v4) is ignored: offsets are kept at least as long as their topics'
records.

Very many offsets are committed a piece at a time, so a rebalance may come between two pieces, and the partitions of the
later ones get its error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from headrace.api.contract import Request, Steps
from headrace.api.pieces import PIECE, Pace, in_turns
from headrace.coordinators.groups.commands import CommitOffsets, OffsetToCommit
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.coordinators.groups.offsets import Topics
from headrace.model.image import TopicImage
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message

_KNOWS_CONSUMER_GROUPS = 9


class OffsetCommit:
    def __init__(self, groups: GroupCoordinator, topics: Topics) -> None:
        self._groups = groups
        self._topics = topics

    def __call__(self, request: Request) -> Steps[Message | Awaitable[Message]]:
        body, image, pace = request.body, self._topics.image(), Pace()
        answers, offsets, waiting = [], list[OffsetToCommit](), list[Message]()
        for asked in body.topics:
            if request.version >= 10:
                topic, unknown = image.topics_by_id.get(asked.topic_id), ErrorCode.unknown_topic_id
            else:
                topic, unknown = image.topics.get(asked.name), ErrorCode.unknown_topic_or_partition
            partitions = []
            for part in asked.partitions:
                answer = Message(partition_index=part.partition_index, error_code=unknown)
                partitions.append(answer)
                if topic is not None and not 0 <= part.partition_index < len(image.partitions_of(topic)):
                    answer.error_code = ErrorCode.unknown_topic_or_partition
                elif topic is not None:
                    offsets.append(_offset(topic, part))
                    waiting.append(answer)
                if pace.is_over():
                    yield
            answers.append(Message(name=asked.name, topic_id=asked.topic_id, partitions=partitions))
        response = Message(topics=answers)
        if not offsets:
            return response
        committed = []
        for at in range(0, len(offsets), PIECE):
            if at:
                yield
            command = CommitOffsets(
                body.group_id,
                body.member_id,
                body.group_instance_id,
                body.generation_id_or_member_epoch,
                tuple(offsets[at : at + PIECE]),
                knows_consumer_groups=request.version >= _KNOWS_CONSUMER_GROUPS,
            )
            committed.append((self._groups.submit(command), waiting[at : at + PIECE]))
        return _answer(committed, response)


def _offset(topic: TopicImage, part: Message) -> OffsetToCommit:
    return OffsetToCommit(
        topic=topic.name,
        topic_id=topic.id,
        partition=part.partition_index,
        offset=part.committed_offset,
        leader_epoch=part.committed_leader_epoch,
        metadata=part.committed_metadata or "",
    )


async def _answer(committed: list[tuple[asyncio.Future[list[ErrorCode]], list[Message]]], response: Message) -> Message:
    async for commit, waiting in in_turns(committed, 1):
        try:
            errors = await commit
        except KafkaError as error:
            errors = [error.code] * len(waiting)
        for answer, code in zip(waiting, errors, strict=True):
            answer.error_code = code
    return response
