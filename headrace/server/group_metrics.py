"""Consumer groups for the metrics endpoint: members, states, and lag in messages and in seconds.

Lag in seconds is the age of the batch with the first record that a group has not committed. Only the batch's header is
read: a scrape decodes no batch and never waits for the disk. If the header is not in memory, the sample is omitted.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.wire.batches import HEADER_BYTES, LOG_APPEND_TIME, read_header
from headrace.wire.errors import KafkaError
from headrace.world.clock import Clock


def group_metrics(groups: GroupCoordinator, host: ReplicaHost, clock: Clock) -> Iterator[Metric]:
    members = GaugeMetricFamily("headrace_group_members", "Members of a consumer group.", labels=["group", "state"])
    for listing in groups.groups():
        members.add_metric([listing.group_id, listing.state], listing.member_count)
    yield members
    labels = ["group", "topic", "partition"]
    lag = GaugeMetricFamily("headrace_group_lag", "Messages that a group has not committed yet.", labels=labels)
    lag_s = GaugeMetricFamily(
        "headrace_group_lag_seconds", "Age of the first message that a group has not committed.", labels=labels
    )
    now = clock.now_ms()
    for group, topic, index, offset in groups.group_offsets():
        try:
            partition = host.find_readable(topic, index)
        except KafkaError:
            continue  # deleted in the meantime
        behind = max(0, partition.high_watermark - max(offset, partition.log.start_offset))
        lag.add_metric([group, topic, str(index)], behind)
        age_s = _age_s(partition, offset, now) if behind else 0.0
        if age_s is not None:
            lag_s.add_metric([group, topic, str(index)], age_s)
    yield lag
    yield lag_s


def _age_s(partition: Partition, offset: int, now_ms: int) -> float | None:
    try:
        found = partition.read(max(offset, partition.log.start_offset), 1, at_least_one=True).load_cached()
    except KafkaError:
        return None
    if found is None or len(found) < HEADER_BYTES:
        return None
    header = read_header(found)
    written_ms = header.max_timestamp if header.attributes & LOG_APPEND_TIME else header.base_timestamp
    return max(0, now_ms - written_ms) / 1000
