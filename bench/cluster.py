"""Clusters of one, two and three brokers: every record on all of them, acknowledged by all (acks=all).

Called by run.py. One cluster runs at a time, started for its measurement. Kafka is measured with three brokers, its
usual deployment; headrace also with fewer, to show the cost of each replica.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import topics
from bench.clusters import Cluster, headrace_cluster, kafka_cluster
from bench.figures import MIB, Samples
from bench.load import Generator, Order
from bench.processes import Children

PARTITIONS = 6
SIZES = (1, 2, 3)
ACKS_ALL = ("acks=all",)

Make = Callable[[Children, Path, int], Cluster]


class Clusters:
    def __init__(self, children: Children, folder: Path, generator: Generator, samples: Samples, messages: int) -> None:
        self._children, self._folder, self._generator = children, folder, generator
        self._samples, self._messages = samples, messages
        self._serial = itertools.count()

    def round(self, number: int) -> None:
        """Who goes first alternates."""
        plan: Sequence[tuple[Make, int]] = [*((headrace_cluster, size) for size in SIZES), (kafka_cluster, SIZES[-1])]
        for make, size in plan if number % 2 == 0 else reversed(plan):
            home = self._folder / f"cluster-{next(self._serial)}"
            cluster = make(self._children, home, size)
            try:
                cluster.start()
                self._measure(cluster, size)
            finally:
                cluster.stop()
                shutil.rmtree(home, ignore_errors=True)

    def _measure(self, cluster: Cluster, size: int) -> None:
        for topic in ("warm", "work", "single"):
            partitions = 1 if topic == "single" else PARTITIONS
            topics.create(cluster.address, topic, partitions, replicas=size, min_isr=min(2, size))
        self._generator.produce(cluster, Order("warm", self._messages // 4, partitions=PARTITIONS, settings=ACKS_ALL))
        before = cluster.cpu_seconds()
        work = self._generator.produce(cluster, Order("work", self._messages, partitions=PARTITIONS, settings=ACKS_ALL))
        spent = cluster.cpu_seconds() - before
        self._samples.add(f"cluster{size}.rate", cluster.name, work.messages / work.seconds)
        self._samples.add(f"cluster{size}.cpu", cluster.name, spent / (work.messages / 1e6))
        self._samples.add(f"cluster{size}.memory", cluster.name, cluster.resident_bytes() / MIB)
        singles = Order("single", max(200, self._messages // 1000), settings=(*ACKS_ALL, "linger.ms=0"))
        seconds = self._generator.acknowledgement_seconds(cluster, singles)
        self._samples.add_percentiles(f"cluster{size}", cluster.name, seconds, {"p50": 50.0, "p99": 99.0})
