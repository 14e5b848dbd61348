"""Sends batches made by hand to a broker, of whichever kind, and returns what it answers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from tests.raw_client import RawClient
from tests.unit.wire.bad_batches import CASES

PRODUCE, METADATA, CREATE_TOPICS = 0, 3, 19


def produce(client: RawClient, topic: str, batches: Mapping[int, bytes | bytearray]) -> list[Message]:
    """What is answered for each partition, in one request with acks=1."""
    data = [Message(index=index, records=records) for index, records in batches.items()]
    body = Message(acks=1, timeout_ms=5000, topic_data=[Message(name=topic, partition_data=data)])
    found: list[Message] = client.call(PRODUCE, 9, body).responses[0].partition_responses
    return found


def create(client: RawClient, name: str, settings: Mapping[str, str] | None = None, partitions: int = 1) -> None:
    """Make a topic, if it is not there, and wait until it has a leader."""
    configs = [Message(name=key, value=value) for key, value in (settings or {}).items()]
    topic = Message(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
    created = client.call(CREATE_TOPICS, 7, Message(topics=[topic], timeout_ms=10_000)).topics[0]
    assert created.error_code in (0, ErrorCode.topic_already_exists), created
    while client.call(METADATA, 9, Message(topics=[Message(name=name)])).topics[0].error_code:
        pass


def answers(port: int) -> list[Message]:
    """What the broker on this port answers to each of the bad batches, in a topic with its settings."""
    found = []
    with RawClient(port) as client:
        for case in CASES:
            name = "-".join(["bad", *case.topic.values()])
            create(client, name, case.topic)
            found += produce(client, name, {0: case.batch})
    return found
