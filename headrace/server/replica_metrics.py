"""Replication for Prometheus: partitions led and followed, replicas that lag, and records lost.

Collected from the partitions at each scrape; the broker plugs it into the endpoint (metrics.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headrace.replicas.host import ReplicaHost
from headrace.replicas.isr import UNKNOWN
from headrace.replicas.partition import Partition
from headrace.replicas.scrub import Scrub


def replica_metrics(host: ReplicaHost, scrub: Scrub) -> Iterator[Metric]:
    partitions = list(host.partitions())
    led = [partition for partition in partitions if partition.leads]
    yield GaugeMetricFamily("headrace_partitions", "Partitions of which this broker has a replica.", len(partitions))
    yield GaugeMetricFamily("headrace_leaders", "Partitions that this broker leads.", len(led))
    yield GaugeMetricFamily(
        "headrace_under_replicated_partitions",
        "Partitions led here with a replica that is not in sync.",
        sum(p.leadership is not None and len(p.leadership.state.isr) < len(p.leadership.state.replicas) for p in led),
    )
    yield GaugeMetricFamily(
        "headrace_under_min_isr_partitions",
        "Partitions led here that reject acks=all, since too few replicas are in sync.",
        sum(p.in_sync < p.log.config.min_insync_replicas for p in led),
    )
    yield CounterMetricFamily(
        "headrace_isr_shrinks",
        "ISR changes by leaders on this broker that removed a replica.",
        sum(p.isr_changes.shrinks for p in partitions),
    )
    yield CounterMetricFamily(
        "headrace_isr_expands",
        "ISR changes by leaders on this broker that added a replica.",
        sum(p.isr_changes.expands for p in partitions),
    )
    yield CounterMetricFamily(
        "headrace_committed_records_lost",
        "Committed records that this broker truncated to match a new leader, after unclean elections.",
        sum(p.followed_log.records_lost for p in partitions),
    )
    yield from _damage_metrics(partitions, scrub)
    lag = GaugeMetricFamily(
        "headrace_replica_lag",
        "Records that a replica has not fetched yet from its leader here; absent until its first fetch.",
        labels=["topic", "partition", "broker"],
    )
    for partition in led:
        followers = partition.leadership.followers.values() if partition.leadership is not None else ()
        for follower in followers:
            if follower.end_offset != UNKNOWN:
                behind = max(0, partition.log.end_offset - follower.end_offset)
                lag.add_metric([partition.topic, str(partition.index), str(follower.broker_id)], behind)
    yield lag


def _damage_metrics(partitions: Sequence[Partition], scrub: Scrub) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "headrace_scrubbed_bytes", "Bytes read from disk to verify their checksums.", scrub.bytes_read
    )
    yield CounterMetricFamily(
        "headrace_damages", "Corrupt batches found on disk, at most one for each check of a partition.", scrub.damages
    )
    yield GaugeMetricFamily(
        "headrace_missing_offsets",
        "Offsets that sealed segments had and that were not there when the broker started.",
        sum(gap.next_offset - gap.first_offset for p in partitions for gap in p.log.missing),
    )
