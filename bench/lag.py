"""Event-loop lag of headrace, read from its Prometheus endpoint.

Called around each measurement. Only the increase during a measurement counts: in between the broker is stopped with
SIGSTOP, which its loop sees as a huge lag. Kafka has no such loop and no such endpoint, so its column is empty.
"""

from __future__ import annotations

import contextlib
import urllib.request
from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

from bench.figures import Samples, added_buckets, bucket_growth, bucket_quantile
from bench.peers import HOST, Peer

METRIC = "headrace_event_loop_lag_seconds"


class LagWatch:
    """The lag over all measurements of one kind of work."""

    def __init__(self) -> None:
        self._stretches: dict[str, list[dict[float, float]]] = {}

    @contextlib.contextmanager
    def stretch(self, peer: Peer) -> Iterator[None]:
        before = read(peer.metrics_port)
        yield
        if before:
            self._stretches.setdefault(peer.name, []).append(bucket_growth(before, read(peer.metrics_port)))

    def add_to(self, samples: Samples, metric: str) -> None:
        for name, stretches in self._stretches.items():
            for label, quantile in (("p50", 0.50), ("p99", 0.99), ("p999", 0.999)):
                seconds = bucket_quantile(added_buckets(stretches), quantile)
                if seconds is not None:
                    samples.add(f"{metric}.{label}", name, seconds * 1000)


def read(port: int) -> dict[float, float]:
    """The cumulative buckets of the lag histogram; empty where there is none."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=5) as response:
            return parse(response.read().decode())
    except OSError:
        return {}


def parse(exposition: str) -> dict[float, float]:
    buckets: dict[float, float] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if sample.name == f"{METRIC}_bucket":
                bound = float(sample.labels["le"])
                buckets[bound] = buckets.get(bound, 0.0) + sample.value
    return buckets
