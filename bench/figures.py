"""The arithmetic of the bench: medians, percentiles, histogram quantiles, and the store of everything measured.

Pure: no clock, no process, no file. Every measuring file adds to `Samples`; report.py reads it. A figure in the table
is always the median of the rounds, so that one disturbed round on a busy machine has no effect.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

MIB = 1024 * 1024


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` per cent of the values do not exceed (nearest rank)."""
    if not values:
        raise ValueError("a percentile needs at least one value")
    ordered = sorted(values)
    rank = math.ceil(len(ordered) * percent / 100)
    return ordered[max(rank, 1) - 1]


def bucket_quantile(buckets: Mapping[float, float], quantile: float) -> float | None:
    """The upper bound of the histogram bucket that holds the quantile; None while the histogram is empty.

    `buckets` maps each upper bound to the cumulative count, as Prometheus exposes it. The bound is an upper limit:
    there is no interpolation inside the bucket.
    """
    total = max(buckets.values(), default=0.0)
    if total <= 0:
        return None
    for bound, count in sorted(buckets.items()):
        if count >= total * quantile:
            return bound
    return math.inf


def added_buckets(parts: Iterable[Mapping[float, float]]) -> dict[float, float]:
    """The histogram of several windows together."""
    total: dict[float, float] = defaultdict(float)
    for part in parts:
        for bound, count in part.items():
            total[bound] += count
    return dict(total)


def bucket_growth(before: Mapping[float, float], after: Mapping[float, float]) -> dict[float, float]:
    """What was observed between two readings of one cumulative histogram."""
    return {bound: count - before.get(bound, 0.0) for bound, count in after.items()}


class Samples:
    """Every value measured, by metric and by peer, one per round."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, list[float]]] = {}

    def add(self, metric: str, peer: str, value: float) -> None:
        self._values.setdefault(metric, {}).setdefault(peer, []).append(value)

    def add_percentiles(self, metric: str, peer: str, seconds: Sequence[float], percents: Mapping[str, float]) -> None:
        """One value for each of the percentiles, which are named behind the metric; in milliseconds."""
        for label, percent in percents.items():
            self.add(f"{metric}.{label}", peer, percentile(seconds, percent) * 1000)

    def values(self, metric: str, peer: str) -> list[float]:
        return list(self._values.get(metric, {}).get(peer, []))

    def median(self, metric: str, peer: str) -> float | None:
        values = self._values.get(metric, {}).get(peer)
        return statistics.median(values) if values else None

    def ratio(self, metric: str, peer: str, other: str) -> float | None:
        """The ratio of the first peer's value to the other's: the median of the ratios of each round, in which both met
        the same state of the machine. None if a value is missing or the other's is zero."""
        values = self._values.get(metric, {})
        mine, theirs = values.get(peer, []), values.get(other, [])
        if not mine or not all(theirs) or len(mine) != len(theirs):
            return None
        return statistics.median(one / another for one, another in zip(mine, theirs, strict=True))

    def as_dict(self) -> dict[str, dict[str, list[float]]]:
        return {
            metric: {peer: list(values) for peer, values in peers.items()} for metric, peers in self._values.items()
        }
