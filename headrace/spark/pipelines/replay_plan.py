"""The plan of a replay: which offsets of the lake, in how many steps. Pure, and unchanged by restarts.

Made once, when a replay first starts, and stored in its checkpoint: the lake may grow and be compacted meanwhile, the
plan does not change. Invariant: the steps of a partition are disjoint, ascending, and cover its range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from headrace.model.failure import Failure
from headrace.spark.lake.manifest import Contents


class Range(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    start: int
    end: int


class Plan(msgspec.Struct, frozen=True):
    lake: str
    ranges: tuple[Range, ...]
    steps: int
    since_ms: int | None = None
    until_ms: int | None = None

    def slices(self, first_step: int, end_step: int) -> list[Range]:
        """The offsets of each partition in these steps."""
        found = []
        for whole in self.ranges:
            length = whole.end - whole.start
            low = whole.start + length * first_step // self.steps
            high = whole.start + length * end_step // self.steps
            if low < high:
                found.append(Range(whole.topic, whole.partition, low, high))
        return found


def make_plan(
    lake: str,
    contents: Contents,
    topics: Sequence[str],
    offsets: Mapping[str, Mapping[int, Sequence[int]]],
    since_ms: int | None,
    until_ms: int | None,
    rows_per_step: int,
) -> Plan:
    """Plan the ranges of every partition with rows of the wanted topics, offsets and times."""
    unknown = sorted({*topics, *offsets} - set(contents.topics()))
    if unknown:
        raise Failure(f"the lake {lake} has no topic {', '.join(unknown)}: choose from {', '.join(contents.topics())}")
    found: dict[tuple[str, int], tuple[int, int]] = {}
    rows = 0
    for file in contents.files.values():
        if topics and file.topic not in topics:
            continue
        if (since_ms is not None and file.last_ms < since_ms) or (until_ms is not None and file.first_ms >= until_ms):
            continue
        for span in file.spans:
            low, high = wanted(offsets, file.topic, span.partition)
            start, end = max(span.start, low), min(span.end, high) if high is not None else span.end
            if start < end:
                key = file.topic, span.partition
                before = found.get(key, (start, end))
                found[key] = min(start, before[0]), max(end, before[1])
                rows += span.rows
    ranges = tuple(Range(topic, partition, *found[topic, partition]) for topic, partition in sorted(found))
    return Plan(lake, ranges, max(1, -(-rows // rows_per_step)), since_ms, until_ms)


def wanted(offsets: Mapping[str, Mapping[int, Sequence[int]]], topic: str, partition: int) -> tuple[int, int | None]:
    """The wanted offset range of a partition; of a topic with offsets, only the named partitions are wanted."""
    if topic not in offsets:
        return 0, None
    named = offsets[topic].get(partition)
    if named is None:
        return 0, 0
    return named[0], named[1] if len(named) > 1 else None
