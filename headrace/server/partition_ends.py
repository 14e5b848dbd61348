"""The high watermarks of partitions anywhere in the cluster, for the lag of share groups.

A group's coordinator leads few of the partitions that the group reads. It asks the leaders of the others, each once
(ListOffsets). A leader that does not answer in time leaves its partitions unknown, with an error that clients retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from headrace.client.blocking import ConnectionLost
from headrace.model.image import BrokerImage, ClusterImage
from headrace.model.topic_partition import TopicPartition
from headrace.replicas.host import ReplicaHost
from headrace.server.peers import Peers
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message

_VERSION = 4
_ANSWER_S = 5.0
_LATEST, _READ_UNCOMMITTED, _NO_REPLICA = -1, 0, -1
_Ends = dict[TopicPartition, int | ErrorCode]


class PartitionEnds:
    def __init__(self, host: ReplicaHost, image: Callable[[], ClusterImage], broker_id: int, peers: Peers) -> None:
        self._host = host
        self._image = image
        self._broker_id = broker_id
        self._peers = peers

    async def ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | ErrorCode]:
        """The high watermark of each partition, or why it is not known."""
        found: _Ends = {}
        elsewhere: dict[int, list[TopicPartition]] = {}
        image = self._image()
        for place in partitions:
            known = image.partition(*place)
            if known is None:
                found[place] = ErrorCode.unknown_topic_or_partition
            elif known.leader == self._broker_id:
                found[place] = self._end(place)
            elif known.leader in image.brokers:
                elsewhere.setdefault(known.leader, []).append(place)
            else:
                found[place] = ErrorCode.leader_not_available
        asked = (self._ask(image.brokers[leader], places) for leader, places in elsewhere.items())
        for ends in await asyncio.gather(*asked):
            found |= ends
        return found

    def _end(self, place: TopicPartition) -> int | ErrorCode:
        try:
            return self._host.find(*place).high_watermark
        except KafkaError as error:
            return error.code

    async def _ask(self, leader: BrokerImage, places: Sequence[TopicPartition]) -> _Ends:
        topics: dict[str, list[Message]] = {}
        for topic, index in places:
            asked = Message(partition_index=index, current_leader_epoch=-1, timestamp=_LATEST)
            topics.setdefault(topic, []).append(asked)
        question = Message(
            replica_id=_NO_REPLICA,
            isolation_level=_READ_UNCOMMITTED,
            topics=[Message(name=name, partitions=asked) for name, asked in topics.items()],
        )
        try:
            answer = await self._peers.call(leader, ApiKey.LIST_OFFSETS, question, _VERSION, timeout_s=_ANSWER_S)
        except (ConnectionLost, KafkaError):
            return dict.fromkeys(places, ErrorCode.leader_not_available)
        ends: _Ends = dict.fromkeys(places, ErrorCode.leader_not_available)
        for topic in answer.topics:
            for part in topic.partitions:
                code = ErrorCode(part.error_code)
                ends[TopicPartition(topic.name, part.partition_index)] = part.offset if code is ErrorCode.none else code
        return ends
