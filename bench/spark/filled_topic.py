"""A topic to read: many equal batches, sent as fast as the broker accepts them.

Called by the bench before anything is measured. The batches are encoded once and sent again and again, so that filling
gigabytes costs seconds; each record has a key of 8 bytes and a value of the wanted size.
"""

from __future__ import annotations

from headrace.client.metadata import Cluster, error_codes
from headrace.wire.api_keys import ApiKey
from headrace.wire.messages import Message
from headrace.wire.record import Record
from headrace.wire.records import encode_batch

_LAST_PRODUCE_VERSION_WITH_NAMES = 12
_BATCH_BYTES = 500_000
_START_MS = 1_700_000_000_000


def fill(bootstrap: str, topic: str, partitions: int, records: int, value_bytes: int) -> int:
    """Create the topic and write about `records` records; returns how many."""
    per_batch = max(1, _BATCH_BYTES // (value_bytes + 20))
    made = [
        Record(turn, _START_MS + turn, turn.to_bytes(8), bytes([65 + turn % 26]) * value_bytes)
        for turn in range(per_batch)
    ]
    batch = bytes(encode_batch(made))
    rounds = max(1, records // (per_batch * partitions))
    with Cluster([bootstrap], "bench") as cluster:
        create(cluster, topic, partitions)
        for partition in range(partitions):
            for _ in range(rounds):
                _send(cluster, topic, partition, batch)
    return per_batch * partitions * rounds


def create(cluster: Cluster, topic: str, partitions: int) -> None:
    forever = [Message(name="retention.ms", value="-1")]  # the records have old timestamps
    wanted = Message(name=topic, num_partitions=partitions, replication_factor=1, configs=forever)
    answer = cluster.call(ApiKey.CREATE_TOPICS, Message(topics=[wanted], timeout_ms=30_000))
    if any(error_codes(answer)):
        raise RuntimeError(f"topic {topic} could not be created: {answer}")
    cluster.leader(topic, 0)


def _send(cluster: Cluster, topic: str, partition: int, batch: bytes) -> None:
    part = Message(index=partition, records=batch)
    body = Message(acks=1, timeout_ms=30_000, topic_data=[Message(name=topic, partition_data=[part])])
    connection = cluster.connection(cluster.leader(topic, partition))
    version = min(connection.version_of(ApiKey.PRODUCE), _LAST_PRODUCE_VERSION_WITH_NAMES)
    answer = connection.call(ApiKey.PRODUCE, body, version=version)
    if any(error_codes(answer)):
        raise RuntimeError(f"partition {partition} of {topic} accepted no batch: {answer}")
