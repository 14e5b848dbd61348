"""How late records are released: a histogram, read when metrics are collected."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

BOUNDS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 60.0, 3600.0)


class Lateness:
    __slots__ = ("_counts", "total_s")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0

    def seen(self, late_ms: int) -> None:
        late_s = max(0, late_ms) / 1000
        self._counts[bisect_left(BOUNDS_S, late_s)] += 1
        self.total_s += late_s

    def buckets(self) -> Iterator[tuple[str, int]]:
        """(upper bound, how many were not later), as Prometheus wants them."""
        return zip((*map(str, BOUNDS_S), "+Inf"), accumulate(self._counts), strict=True)
