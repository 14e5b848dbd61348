"""How long other brokers' logs are: what they answer, and what counts as no answer."""

from __future__ import annotations

import asyncio
from typing import cast

from headrace.api.offset_for_leader_epoch import OWN_LOG
from headrace.client.blocking import Address, ConnectionLost
from headrace.model.image import BrokerImage
from headrace.server.log_ends import PeersLogEnds
from headrace.server.peers import Peers
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message

BROKER = BrokerImage(2, "127.0.0.1", 9092, None, 0)
ASKED = [("orders", 0), ("orders", 1), ("paid", 4)]


class OnePeer:
    def __init__(self, answer: Message | None) -> None:
        self.answer = answer
        self.asked: list[Message] = []

    async def call(
        self, broker: BrokerImage, api_key: int, message: Message, version: int, *, timeout_s: float
    ) -> Message:
        self.asked.append(message)
        if self.answer is None:
            raise ConnectionLost(Address(broker.host, broker.port), "it is gone")
        return self.answer


def ask(peer: OnePeer) -> dict[tuple[str, int], tuple[int, int]]:
    return asyncio.run(PeersLogEnds(cast("Peers", peer)).ask(BROKER, ASKED))


def test_a_broker_tells_the_ends_of_its_own_logs() -> None:
    told = [
        Message(
            topic="orders",
            partitions=[
                Message(partition=0, error_code=ErrorCode.none, leader_epoch=3, end_offset=70),
                Message(partition=1, error_code=ErrorCode.kafka_storage_error, leader_epoch=-1, end_offset=-1),
            ],
        ),
        Message(
            topic="paid",
            partitions=[Message(partition=4, error_code=ErrorCode.none, leader_epoch=-1, end_offset=0)],
        ),
    ]
    peer = OnePeer(Message(topics=told))
    assert ask(peer) == {("orders", 0): (3, 70), ("paid", 4): (-1, 0)}
    assert peer.asked[0].replica_id == OWN_LOG
    assert [(topic.topic, [one.partition for one in topic.partitions]) for topic in peer.asked[0].topics] == [
        ("orders", [0, 1]),
        ("paid", [4]),
    ]


def test_a_broker_that_cannot_be_reached_has_said_nothing() -> None:
    assert ask(OnePeer(None)) == {}
