"""The controller and the state of the whole cluster, for Prometheus.

Every broker tells how many partitions are without a leader, from its own view; elections are told by whoever held them.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headrace.cluster.controller import Controller
from headrace.model.image import NO_LEADER, ClusterImage


def controller_metrics(controller: Controller, image: ClusterImage) -> Iterator[Metric]:
    partitions = [partition for topic in image.topics.values() for partition in topic.partitions]
    yield GaugeMetricFamily(
        "headrace_active_controller", "1 on the broker that is the controller.", int(controller.in_office)
    )
    yield GaugeMetricFamily("headrace_brokers", "Live brokers of the cluster.", len(image.brokers))
    yield GaugeMetricFamily(
        "headrace_offline_partitions",
        "Partitions of the cluster that nobody leads.",
        sum(partition.leader == NO_LEADER for partition in partitions),
    )
    yield GaugeMetricFamily(
        "headrace_moving_partitions",
        "Partitions that are being moved to other brokers.",
        sum(bool(partition.adding or partition.removing) for partition in partitions),
    )
    yield GaugeMetricFamily(
        "headrace_recovering_partitions",
        "Partitions whose leader was elected uncleanly and is still alone.",
        sum(partition.recovering for partition in partitions),
    )
    yield CounterMetricFamily(
        "headrace_unclean_elections",
        "Elections in which acknowledged records may have been lost, held by this broker.",
        controller.recovery.unclean_elections,
    )
