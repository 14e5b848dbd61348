"""Counts and latencies of requests by API, kept as plain integers so that recording one takes well under a microsecond.

Read by `server.metrics` at scrape time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Latencies:
    """A histogram: the count of each bucket (not cumulative), and the sum."""

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0

    def note(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.total_s += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative, as Prometheus expects."""
        found, running = [], 0
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self.counts, strict=True):
            running += count
            found.append((bound, float(running)))
        return found


class RequestsSeen(defaultdict[int, Latencies]):
    """By API key."""

    def __init__(self) -> None:
        super().__init__(Latencies)
