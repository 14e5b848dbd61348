"""The lag of a group, in messages and in seconds.

Called by group describe. Invariant: messages are counted from where the group would resume, so offsets deleted by
retention are not lag; seconds are the age of the first message that is not committed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.cli.connection import client_settings
from headrace.cli.message_text import timestamp_ms
from headrace.cli.topics import Partition, end_offsets, start_offsets

if TYPE_CHECKING:
    from headrace.cli.admin_nouns import AdminClient

LOOKS = 50  # polls of 0.1 s each for the first uncommitted records


@dataclass(frozen=True)
class Lag:
    """A group's offset and lag in one partition; None where it is not known."""

    committed: int | None
    end: int
    messages: int | None
    seconds: float | None


def measure_lag(
    admin: "AdminClient", broker: str, committed: Mapping[Partition, int | None], now: int
) -> dict[Partition, Lag]:
    """The lag of each partition; without a committed offset it is unknown."""
    starts, ends = start_offsets(admin, committed), end_offsets(admin, committed)
    positions = {
        partition: max(offset, starts[partition]) for partition, offset in committed.items() if offset is not None
    }
    behind = {partition: offset for partition, offset in positions.items() if offset < ends[partition]}
    times_ms = first_timestamps(broker, behind)
    lags: dict[Partition, Lag] = {}
    for partition, offset in committed.items():
        messages = max(ends[partition] - positions[partition], 0) if partition in positions else None
        seconds: float | None = 0.0 if messages == 0 else None
        if times_ms.get(partition, -1) >= 0:
            seconds = max(now - times_ms[partition], 0) / 1000
        lags[partition] = Lag(offset, ends[partition], messages, seconds)
    return lags


def first_timestamps(broker: str, positions: Mapping[Partition, int]) -> dict[Partition, int]:
    """The timestamp of the first record at or after each position; partitions without a timely response are omitted."""
    if not positions:
        return {}
    from confluent_kafka import Consumer, TopicPartition

    settings = {
        "group.id": "headrace-cli",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.message.max.bytes": 1,  # one batch per partition, the least that a broker returns
        "queued.min.messages": 1,
    }
    consumer = Consumer(client_settings(broker, settings))
    found: dict[Partition, int] = {}
    try:
        consumer.assign([TopicPartition(topic, number, offset) for (topic, number), offset in positions.items()])
        for _ in range(LOOKS + len(positions)):
            if len(found) == len(positions):
                break
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            partition = (message.topic() or "", message.partition() or 0)
            if partition not in found:
                found[partition] = timestamp_ms(message)
                consumer.incremental_unassign([TopicPartition(*partition)])
    finally:
        consumer.close()
    return found
