"""Lookups by time: the first record at or after a moment, and the latest record. They block; called off the loop.

Time index, then headers, then the one batch that decides is opened: the answer names a record, not a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.log.segment import Segment
from headrace.wire import records
from headrace.wire.batches import BatchHeader


def find_time(segments: Sequence[Segment], timestamp_ms: int, start: int, below: int) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record from `start` on and before `below` that is as late as this."""
    for segment in segments:
        if segment.base_offset >= below:
            return None
        for position, header in _late_batches(segment, timestamp_ms, start, below):
            batch = segment.peek(position, header.size, wait=True)
            found = records.first_at_or_after(batch, timestamp_ms, from_offset=start)
            if found is not None:
                return found if found[0] < below else None
    return None


def find_max(segments: Sequence[Segment], start: int, below: int) -> tuple[int, int] | None:
    """(offset, timestamp) of the latest record, the first if several are as late."""
    best = -1
    for segment in segments:
        if segment.base_offset < below and segment.newest_timestamp() > best:
            latest = max((h.max_timestamp for _, h in _late_batches(segment, best + 1, start, below)), default=-1)
            best = max(best, latest)
    return find_time(segments, best, start, below) if best >= 0 else None


def _late_batches(segment: Segment, timestamp_ms: int, start: int, below: int) -> Iterator[tuple[int, BatchHeader]]:
    """The batches with records in [start, below) whose latest timestamp is at least this one."""
    if segment.newest_timestamp() < timestamp_ms:
        return
    first = segment.index(wait=True).position_of_time(timestamp_ms)
    for position, header in segment.headers(first, segment.size, wait=True):
        if header.base_offset >= below:
            return
        if header.max_timestamp >= timestamp_ms and header.last_offset >= start and header.record_count:
            yield position, header
