"""The ends of partitions here and elsewhere: whom to ask, and what counts as no answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from headrace.client.blocking import Address, ConnectionLost
from headrace.model.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from headrace.model.topic_partition import TopicPartition
from headrace.server.partition_ends import PartitionEnds
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message

HERE, THERE, GONE = 1, 2, 3
LEADERS = (HERE, THERE, THERE, GONE, HERE, THERE)


def image() -> ClusterImage:
    partitions = tuple(
        PartitionImage(index, (leader,), (leader,), leader, 0, 0) for index, leader in enumerate(LEADERS)
    )
    topic = TopicImage("orders", UUID(int=1), partitions, {})
    brokers = {number: BrokerImage(number, "127.0.0.1", 9092, None, 0) for number in (HERE, THERE)}
    return ClusterImage("c", HERE, brokers=brokers, topics={"orders": topic}, topics_by_id={topic.id: topic})


class Host:
    def find(self, topic: str, index: int) -> SimpleNamespace:
        if index == 4:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        return SimpleNamespace(high_watermark=10)


class Peer:
    """Knows partition 1, refuses 2 and leaves out 5."""

    def __init__(self, lost: bool) -> None:
        self.lost = lost
        self.asked: list[Message] = []

    async def call(self, broker: BrokerImage, api_key: int, message: Message, version: int, **_: object) -> Message:
        self.asked.append(message)
        if self.lost:
            raise ConnectionLost(Address(broker.host, broker.port), "it is gone")
        parts = [
            Message(partition_index=1, error_code=ErrorCode.none, offset=70),
            Message(partition_index=2, error_code=ErrorCode.kafka_storage_error, offset=-1),
        ]
        return Message(topics=[Message(name="orders", partitions=parts)])


def ends(peer: Peer) -> dict[int, int | ErrorCode]:
    places = [TopicPartition("orders", index) for index in range(len(LEADERS) + 1)]
    asking = PartitionEnds(cast("Any", Host()), image, HERE, cast("Any", peer))
    return {place.partition: end for place, end in asyncio.run(asking.ends(places)).items()}


def test_each_leader_is_asked_once() -> None:
    peer = Peer(lost=False)
    assert ends(peer) == {
        0: 10,
        1: 70,
        2: ErrorCode.kafka_storage_error,
        3: ErrorCode.leader_not_available,
        4: ErrorCode.not_leader_or_follower,
        5: ErrorCode.leader_not_available,
        6: ErrorCode.unknown_topic_or_partition,
    }
    (asked,) = peer.asked
    assert [(part.partition_index, part.timestamp) for part in asked.topics[0].partitions] == [
        (1, -1),
        (2, -1),
        (5, -1),
    ]


def test_a_leader_that_cannot_be_reached_leaves_its_partitions_unknown() -> None:
    found = ends(Peer(lost=True))
    assert (found[0], found[1], found[2]) == (10, ErrorCode.leader_not_available, ErrorCode.leader_not_available)
