"""AlterShareGroupOffsets, v0: sets where a share group without members starts in partitions (KIP-932).

What the group knew of the records of such a partition is forgotten. NON_EMPTY_GROUP if the group has members.
"""

from __future__ import annotations

from headrace.api.contract import Reply, Request
from headrace.api.share_group_offsets import ShareGroupOffsets
from headrace.coordinators.groups.offsets import Topics
from headrace.model.topic_partition import TopicPartition
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message


class AlterShareGroupOffsets:
    def __init__(self, offsets: ShareGroupOffsets, topics: Topics) -> None:
        self._offsets = offsets
        self._topics = topics

    def __call__(self, request: Request) -> Reply:
        return self._answer(request.body)

    async def _answer(self, body: Message) -> Message:
        starts = {
            TopicPartition(topic.topic_name, part.partition_index): int(part.start_offset)
            for topic in body.topics
            for part in topic.partitions
        }
        try:
            results = await self._offsets.seek(body.group_id, starts)
        except KafkaError as error:
            return Message(error_code=error.code, error_message=error.message or None, responses=[])
        known = self._topics.image().topics
        topics: dict[str, Message] = {}
        for place, refusal in results.items():
            topic_id = known[place.topic].id if place.topic in known else None
            topic = topics.setdefault(place.topic, Message(topic_name=place.topic, topic_id=topic_id, partitions=[]))
            topic.partitions.append(
                Message(
                    partition_index=place.partition,
                    error_code=ErrorCode.none if refusal is None else refusal.code,
                    error_message=None if refusal is None else refusal.message or None,
                )
            )
        return Message(responses=list(topics.values()))
