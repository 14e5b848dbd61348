"""DescribeShareGroupOffsets, v0 and v1: where share groups start in partitions (KIP-932).

No topics (null) means all that a group has state of. A partition without state has start offset -1 and no error. v1
adds the lag (KIP-1226): the records that are neither acknowledged nor archived, -1 if that is not known.
"""

from __future__ import annotations

from headrace.api.contract import Reply, Request
from headrace.api.pieces import in_turns
from headrace.api.share_group_offsets import ShareGroupOffsets, StartOffset
from headrace.coordinators.groups.offsets import Topics
from headrace.model.topic_partition import TopicPartition
from headrace.wire.errors import KafkaError
from headrace.wire.messages import Message

_GROUPS = 10  # in one piece: each has many partitions


class DescribeShareGroupOffsets:
    def __init__(self, offsets: ShareGroupOffsets, topics: Topics) -> None:
        self._offsets = offsets
        self._topics = topics

    def __call__(self, request: Request) -> Reply:
        return self._answer(request.body.groups)

    async def _answer(self, asked: list[Message]) -> Message:
        groups = []
        async for group in in_turns(asked, _GROUPS):
            try:
                groups.append(await self._group(group))
            except KafkaError as error:
                words = error.message or None
                groups.append(Message(group_id=group.group_id, topics=[], error_code=error.code, error_message=words))
        return Message(groups=groups)

    async def _group(self, group: Message) -> Message:
        if group.topics is None:
            places = await self._offsets.known(group.group_id)
            names = list(dict.fromkeys(place.topic for place in places))
        else:
            names = list(dict.fromkeys(topic.topic_name for topic in group.topics))
            places = [TopicPartition(topic.topic_name, index) for topic in group.topics for index in topic.partitions]
        found = await self._offsets.describe(group.group_id, list(dict.fromkeys(places)))
        topics: dict[str, Message] = {name: self._topic(name) for name in names}
        for place, offset in found.items():
            topics[place.topic].partitions.append(_partition(place.partition, offset))
        return Message(group_id=group.group_id, topics=list(topics.values()))

    def _topic(self, name: str) -> Message:
        known = self._topics.image().topics.get(name)
        return Message(topic_name=name, topic_id=None if known is None else known.id, partitions=[])


def _partition(index: int, offset: StartOffset) -> Message:
    return Message(
        partition_index=index,
        start_offset=offset.start,
        leader_epoch=offset.leader_epoch,
        lag=offset.lag,
        error_code=offset.error,
    )
