"""How far the logs of topics reach, asked of their leaders."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.client.metadata import Cluster
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message

LIST_OFFSETS = 2
LATEST = -1
PATIENCE_S = 10.0


def log_ends(brokers: str, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """The next offset of each of these partitions; those that are not there are left out."""
    ends: dict[tuple[str, int], int] = {}
    wanted = sorted(partitions)
    if not wanted:
        return ends
    with Cluster(brokers.split(","), "headrace-pipeline", patience_s=PATIENCE_S) as cluster:
        known = cluster.topics(sorted({topic for topic, _ in wanted}))
        for topic, partition in wanted:
            if topic not in known or all(part.index != partition for part in known[topic].partitions):
                continue
            question = Message(
                replica_id=-1,
                isolation_level=0,
                topics=[Message(name=topic, partitions=[Message(partition_index=partition, timestamp=LATEST)])],
            )
            answer = cluster.call_leader(topic, partition, LIST_OFFSETS, question).topics[0].partitions[0]
            if answer.error_code == ErrorCode.none:
                ends[topic, partition] = answer.offset
    return ends
