"""Which segments may go: by age, by size, and because DeleteRecords passed them. Pure functions over their facts.

Called by trimming.py. Only segments from the oldest on are dropped, without gaps. The active segment may be among them:
then it is sealed first, and an empty one takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct


class SegmentFacts(Struct, frozen=True):
    base_offset: int
    size: int
    next_base_offset: int
    newest_ms: Callable[[], int]
    """When its newest record is from; asked only as far as needed, since it may have to be read."""


class Limits(Struct, frozen=True):
    start_offset: int
    retention_ms: int  # -1: no limit
    retention_bytes: int  # -1: no limit


def segments_to_drop(segments: Sequence[SegmentFacts], limits: Limits, now_ms: int) -> int:
    """How many segments, counted from the oldest, may go. An empty one stays where it is the last."""
    excess = sum(segment.size for segment in segments) - limits.retention_bytes
    count = 0
    for segment in segments:
        if segment.next_base_offset == segment.base_offset:
            break
        goes = (
            segment.next_base_offset <= limits.start_offset
            or (limits.retention_bytes >= 0 and excess >= segment.size)
            or (limits.retention_ms >= 0 and now_ms - segment.newest_ms() > limits.retention_ms)
        )
        if not goes:
            break
        excess -= segment.size
        count += 1
    return count
