"""OffsetDelete, v0: deletes committed offsets of topics to which no member of the group is subscribed (KIP-496).

An error of the group is at the top level, whatever the partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from headrace.api.contract import Request, Steps
from headrace.api.pieces import Pace
from headrace.coordinators.groups.commands import DeleteOffsets
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.coordinators.groups.offsets import Topics
from headrace.model.topic_partition import TopicPartition
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message


class OffsetDelete:
    def __init__(self, groups: GroupCoordinator, topics: Topics) -> None:
        self._groups = groups
        self._topics = topics

    def __call__(self, request: Request) -> Steps[Awaitable[Message]]:
        pace = Pace()
        answers, places, waiting = [], list[TopicPartition](), list[Message]()
        image = self._topics.image()
        known = image.topics
        for topic in request.body.topics:
            partitions, count = [], len(image.partitions_of(known[topic.name])) if topic.name in known else 0
            for part in topic.partitions:
                answer = Message(partition_index=part.partition_index, error_code=ErrorCode.unknown_topic_or_partition)
                partitions.append(answer)
                if 0 <= part.partition_index < count:
                    places.append(TopicPartition(topic.name, part.partition_index))
                    waiting.append(answer)
                if pace.is_over():
                    yield
            answers.append(Message(name=topic.name, partitions=partitions))
        deleted = self._groups.submit(DeleteOffsets(request.body.group_id, tuple(places)))
        return _answer(deleted, Message(topics=answers), waiting)


async def _answer(
    deleted: asyncio.Future[list[ErrorCode] | ErrorCode], response: Message, waiting: list[Message]
) -> Message:
    try:
        errors = await deleted
    except KafkaError as error:
        return Message(error_code=error.code)
    if isinstance(errors, ErrorCode):
        return Message(error_code=errors)
    for answer, code in zip(waiting, errors, strict=True):
        answer.error_code = code
    return response
