"""Divides offset ranges among tasks: pure arithmetic on the driver.

Called by the batch and the stream reader with known offsets. Invariant: the resulting ranges are disjoint and cover
exactly the given ones. Only `limited` and `narrowed` return less, and `limited` never nothing while there is something
to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headrace.model.topic_partition import TopicPartition
from headrace.spark.source.positions import Offsets

# A task costs tens of milliseconds, however little it reads, so in a stream one task reads several small ranges.
SMALL_TASK_RECORDS = 20_000


@dataclass(frozen=True)
class OffsetRange:
    """The offsets of one partition from `start` to before `end`."""

    place: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def ranges_between(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """The ranges between two sets of offsets, for partitions in both."""
    return [
        OffsetRange(place, start[place], offset)
        for place, offset in sorted(end.items())
        if place in start and start[place] < offset
    ]


def split(ranges: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None) -> list[OffsetRange]:
    """Split large ranges, so that none is larger than `max_records` and there are at least `min_partitions` of them."""
    parts = [part for one in ranges for part in _cut(one, -(-one.size // max_records) if max_records else 1)]
    if min_partitions is None or len(parts) >= min_partitions:
        return parts
    total = sum(one.size for one in parts)
    shares = {one: max(1, round(one.size / total * min_partitions)) for one in parts}
    while sum(shares.values()) < min_partitions and any(shares[one] < one.size for one in parts):
        widest = max((one for one in parts if shares[one] < one.size), key=lambda one: one.size / shares[one])
        shares[widest] += 1
    return [part for one in parts for part in _cut(one, shares[one])]


def _cut(one: OffsetRange, pieces: int) -> list[OffsetRange]:
    pieces = max(1, min(pieces, one.size))
    edges = [one.start + one.size * turn // pieces for turn in range(pieces + 1)]
    return [OffsetRange(one.place, low, high) for low, high in pairwise(edges)]


def packed(ranges: Sequence[OffsetRange], min_tasks: int | None) -> list[tuple[OffsetRange, ...]]:
    """Group ranges into tasks: small ones share a task, down to `min_tasks` tasks."""
    tasks: list[tuple[OffsetRange, ...]] = []
    shared: list[OffsetRange] = []
    spare = len(ranges) - (min_tasks or 1)
    for one in sorted(ranges, key=lambda one: -one.size):
        together = sum(other.size for other in shared) + one.size
        if shared and (together > SMALL_TASK_RECORDS or spare <= 0):
            tasks.append(tuple(shared))
            shared = []
        elif shared:
            spare -= 1
        shared.append(one)
    return [*tasks, tuple(shared)] if shared else tasks


def limited(start: Offsets, end: Offsets, limit: int) -> Offsets:
    """End offsets for at most `limit` records after `start`, shared among partitions in proportion to their backlog."""
    behind = {place: end[place] - start.get(place, 0) for place in end}
    total = sum(max(0, size) for size in behind.values())
    if total <= limit:
        return dict(end)
    reached: Offsets = {}
    given = 0
    for place, size in sorted(behind.items()):
        share = max(0, size) * limit // total
        reached[place] = end[place] if size <= 0 else start.get(place, 0) + share
        given += share if size > 0 else 0
    # The remainder of rounding goes to the partitions with the largest backlog, so that every partition advances.
    for place in sorted(behind, key=lambda place: (reached[place] - end[place], place)):
        if given >= limit or reached[place] >= end[place]:
            break
        reached[place] += 1
        given += 1
    return reached


def record_count(start: Offsets, end: Offsets) -> int:
    """How many offsets are between the two."""
    return sum(max(0, end[place] - start.get(place, 0)) for place in end)


def narrowed(ranges: Iterable[OffsetRange], low: Offsets, high: Offsets) -> list[OffsetRange]:
    """The ranges without offsets below `low`, or at or above `high`; partitions without a bound stay as they are."""
    cut = (
        OffsetRange(
            one.place, max(one.start, low.get(one.place, one.start)), min(one.end, high.get(one.place, one.end))
        )
        for one in ranges
    )
    return [one for one in cut if one.start < one.end]
