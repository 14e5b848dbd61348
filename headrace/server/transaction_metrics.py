"""Transactions for the metrics endpoint: how many in each state, the age of the oldest, and the readers they block.

The last one shows hanging transactions: a partition blocks its readers although no coordinator has a transaction open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from headrace.coordinators.transactions.coordinator import TransactionCoordinator
from headrace.coordinators.transactions.transaction import State
from headrace.replicas.host import ReplicaHost
from headrace.world.clock import Clock


def transaction_metrics(transactions: TransactionCoordinator, host: ReplicaHost, clock: Clock) -> Iterator[Metric]:
    known = list(transactions.transactions())
    states = GaugeMetricFamily("headrace_transactions", "Transactional ids by state.", labels=["state"])
    for state, count in Counter(transaction.state for transaction in known).items():
        states.add_metric([state.value], count)
    yield states
    begun_ms = [transaction.start_ms for transaction in known if transaction.state is State.ONGOING]
    oldest_s = max(0, clock.now_ms() - min(begun_ms)) / 1000 if begun_ms else 0.0
    yield GaugeMetricFamily("headrace_oldest_transaction_seconds", "Age of the oldest open transaction.", oldest_s)
    held = GaugeMetricFamily(
        "headrace_unstable_offsets",
        "Offsets that read_committed consumers cannot read yet, for partitions that have some.",
        labels=["topic", "partition"],
    )
    for partition in host.partitions():
        count = partition.high_watermark - partition.last_stable_offset
        if count:
            held.add_metric([partition.topic, str(partition.index)], count)
    yield held
