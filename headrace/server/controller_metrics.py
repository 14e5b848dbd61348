"""The controller and the state of the whole cluster, for Prometheus.

Every broker reports the partitions without a leader as it sees them; an election is counted by the broker that held it.
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
        "Partitions of the cluster without a leader.",
        sum(partition.leader == NO_LEADER for partition in partitions),
    )
    yield GaugeMetricFamily(
        "headrace_moving_partitions",
        "Partitions that are being reassigned.",
        sum(bool(partition.adding or partition.removing) for partition in partitions),
    )
    yield GaugeMetricFamily(
        "headrace_recovering_partitions",
        "Partitions whose leader was elected uncleanly and has no other replica in sync yet.",
        sum(partition.recovering for partition in partitions),
    )
    yield CounterMetricFamily(
        "headrace_unclean_elections",
        "Unclean elections that this broker decided; acknowledged records may have been lost.",
        controller.recovery.unclean_elections,
    )
