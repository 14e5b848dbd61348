"""Is a register with unique values linearizable? The clustering test of Gibbons and Korach.

Each value is written once, so a write and the reads of its value form a cluster. Its zone reaches from the first end
to the last beginning of its operations: forward, if some operation ended before another began (then the register
must hold the value all that time), backward otherwise (then some moment in it is enough). Reads being after their
writes, a history is linearizable exactly if no two forward zones overlap and no backward zone lies inside a forward
one. Sorting makes it O(n log n). Called by `groups.py` for committed offsets.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple


class Span(NamedTuple):
    start: int
    end: int


@dataclass(slots=True)
class Cluster:
    """A write and the reads that returned its value. The end of a write that nobody confirmed lies beyond all."""

    value: str
    write: Span
    reads: list[Span] = field(default_factory=list)

    @property
    def first_end(self) -> int:
        return min(self.write.end, min((read.end for read in self.reads), default=self.write.end))

    @property
    def last_start(self) -> int:
        return max(self.write.start, max((read.start for read in self.reads), default=self.write.start))


class Conflict(NamedTuple):
    one: Cluster
    other: Cluster
    """Its zone overlaps that of `one`; the cluster itself, if a read ended before the write began."""


def conflicts(clusters: list[Cluster]) -> list[Conflict]:
    found = [
        Conflict(cluster, cluster)
        for cluster in clusters
        if any(read.end < cluster.write.start for read in cluster.reads)
    ]
    if found:
        return found
    forward = sorted((c for c in clusters if c.first_end < c.last_start), key=lambda c: c.first_end)
    for one, other in pairwise(forward):
        if other.first_end < one.last_start:
            found.append(Conflict(one, other))
    starts = [cluster.first_end for cluster in forward]
    for cluster in clusters:
        if cluster.first_end < cluster.last_start:
            continue
        place = bisect_right(starts, cluster.last_start) - 1
        if place >= 0 and cluster.first_end <= forward[place].last_start:
            found.append(Conflict(forward[place], cluster))
    return found
