"""From an offset to a range of bytes: which batches of which segment answer a read.

A `Slice` always holds whole batches, begins with the batch that has the wanted offset (or the next one, where
compaction has left a gap), and ends before `below`. A slice for consumers is no batch without records alone while there
is something behind it: some clients take an answer without records for the end, and ask for the same again for ever.
Making one costs a lookup in memory; where the index or a header
is not in memory, the slice is left open and its range is found by `load`, off the event loop.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from headrace.log.segment import NotCached, Segment
from headrace.wire.batches import HEADER_BYTES, BatchHeader
from headrace.world.disk import Buffer


class Wanted(Struct, frozen=True):
    """What a reader asked for; `limited` if `below` is not simply the log's end."""

    offset: int
    max_bytes: int
    below: int
    limited: bool
    at_least_one: bool
    for_consumer: bool = False


class Slice:
    """A range of batches, not read yet. `size` is an upper estimate while the range is not known; `more` says that the
    reader could go on right behind it."""

    __slots__ = ("_kept", "_position", "_segment", "_segments", "_wanted", "more", "size")

    def __init__(
        self,
        size: int,
        segment: Segment | None = None,
        position: int = 0,
        wanted: Wanted | None = None,
        segments: Sequence[Segment] = (),
        *,
        more: bool = False,
        kept: bytes | None = None,
    ) -> None:
        self.size = size
        self.more = more
        self._segment = segment
        self._position = position
        self._wanted = wanted
        self._segments = segments
        self._kept = kept  # the bytes, if they are in memory anyway

    def load_cached(self) -> Buffer | None:
        """The bytes at once, None if that would wait for the disk; the memory is lent (`File.borrow_cached`)."""
        if self._kept is not None:
            return self._kept
        if self._segment is None:
            return None
        try:
            with self._segment.file as file:
                return file.borrow_cached(self.size, self._position)
        except FileNotFoundError:
            return b""

    def first_header(self, *, wait: bool) -> BatchHeader:
        """Of a slice that is not empty and whose range is known."""
        assert self._segment is not None
        _, header = next(iter(self._segment.headers(self._position, self._position + self.size, wait=wait)))
        return header

    def load(self) -> bytes:
        """The bytes, from the disk in any case; blocks. Empty if retention took the segment away meanwhile: the next
        read will say so."""
        try:
            if self._segment is None and self._wanted is not None:
                found = find(self._segments, self._wanted, wait=True)
                self.size, self._segment, self._position = found.size, found._segment, found._position
            if self._segment is None or self.size == 0:
                return b""
            with self._segment.file as file:
                return file.pread(self.size, self._position)
        except FileNotFoundError:
            return b""


EMPTY = Slice(0, kept=b"")


def segment_at(segments: Sequence[Segment], offset: int) -> int:
    """The place of the segment whose range holds `offset`."""
    if offset >= segments[-1].base_offset:
        return len(segments) - 1
    return max(0, bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)


def slice_of(segments: Sequence[Segment], wanted: Wanted) -> Slice:
    """Never waits."""
    try:
        return find(segments, wanted, wait=False)
    except NotCached:
        at = segment_at(segments, wanted.offset)
        size = min(max(wanted.max_bytes, 1), segments[at].size)
        later = replace(wanted, limited=True)  # by then the log may have grown past what this reader may see
        return Slice(size, None, 0, later, segments)


def find(segments: Sequence[Segment], wanted: Wanted, *, wait: bool) -> Slice:
    """The bytes that answer, all in one segment. Raises NotCached only without `wait`."""
    found = _next_batches(segments, wanted, wait)
    while wanted.for_consumer and found.size == HEADER_BYTES:  # a batch without records, and nothing else
        next_offset = found.first_header(wait=wait).next_offset
        if next_offset >= wanted.below:
            break
        behind = _next_batches(segments, replace(wanted, offset=next_offset), wait)
        if not behind.size:
            break
        found = behind
    return found


def _next_batches(segments: Sequence[Segment], wanted: Wanted, wait: bool) -> Slice:
    at = segment_at(segments, wanted.offset)
    start = segments[at].locate(wanted.offset, wait=wait)
    while start >= segments[at].size:
        at += 1
        if at == len(segments) or segments[at].base_offset >= wanted.below:
            return EMPTY
        start = segments[at].locate(wanted.offset, wait=wait)
    segment = segments[at]
    stop = segment.size
    more = at + 1 < len(segments) and segments[at + 1].base_offset < wanted.below
    if wanted.limited and (at + 1 == len(segments) or segments[at + 1].base_offset > wanted.below):
        stop = segment.locate(wanted.below, wait=wait)
    if start + wanted.max_bytes < stop:
        stop, more = _shortened(segment, start, stop, wanted, wait), True
    return Slice(stop - start, segment, start, more=more) if stop > start else EMPTY


def _shortened(segment: Segment, start: int, stop: int, wanted: Wanted, wait: bool) -> int:
    """The end of as many whole batches as `max_bytes` hold; of the first one if it must be sent in any case."""
    ceiling = start + wanted.max_bytes
    boundary = segment.boundary_at_or_before(ceiling, wait=wait)
    if boundary > start:
        return boundary
    for position, header in segment.headers(start, stop, wait=wait):
        if position + header.size > ceiling:
            return position + header.size if position == start and wanted.at_least_one else position
    return stop
