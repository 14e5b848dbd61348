"""From an offset to a range of bytes: which batches of which segment answer a read, and loading them.

A `Slice` always holds whole batches, begins with the batch that has the wanted offset (or the next one, where
compaction has left a gap), and ends before `below`. Making one costs a lookup in memory; where the index or a header is
not in memory, the slice is left open and its range is found by `load`, off the event loop.

All bytes that leave a log for a reader are loaded here. A consumer's slice of a log with thinned batches passes
visible.py on the way; every other slice is given as it is stored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from headrace.log.opening import ON_LOOP_BYTES
from headrace.log.segment import NotCached, Segment
from headrace.log.visible import visible
from headrace.wire.errors import TooMuch
from headrace.world.disk import Buffer


class ReadBounds(Struct, frozen=True):
    """What a reader asked for; `limited` if `below` is not simply the log's end."""

    offset: int
    max_bytes: int
    below: int
    limited: bool
    at_least_one: bool
    thinned: bool = False  # a consumer reads batches that may have lost records: see visible.py


class Slice:
    """A range of batches, not read yet. `size` is that of the range, an upper estimate while the range is not known;
    `more` says that the reader could go on right behind it."""

    __slots__ = ("_bounds", "_kept", "_position", "_segment", "_segments", "more", "size")

    def __init__(
        self,
        size: int,
        segment: Segment | None = None,
        position: int = 0,
        bounds: ReadBounds | None = None,
        segments: Sequence[Segment] = (),
        *,
        more: bool = False,
        kept: bytes | None = None,
    ) -> None:
        self.size = size
        self.more = more
        self._segment = segment
        self._position = position
        self._bounds = bounds  # of a slice whose range is not known yet, or which is not given as it is stored
        self._segments = segments
        self._kept = kept  # the bytes, if they are in memory anyway

    def load_cached(self) -> Buffer | None:
        """The bytes at once, None if that would wait for the disk or take long; the memory is lent
        (`File.borrow_cached`)."""
        if self._kept is not None:
            return self._kept
        if self._segment is None:
            return None
        try:
            with self._segment.file as file:
                stored = file.borrow_cached(self.size, self._position)
        except FileNotFoundError:
            return b""
        if stored is None or self._bounds is None:
            return stored
        try:
            return self._shown(stored, self._bounds, ON_LOOP_BYTES)
        except TooMuch:
            return None

    def load(self) -> Buffer:
        """The bytes, from the disk unless they are kept; blocks. Empty if retention took the segment away meanwhile:
        the next read will say so."""
        if self._kept is not None:
            return self._kept
        try:
            if self._segment is None and self._bounds is not None:
                found = find(self._segments, self._bounds, wait=True)
                self.size, self.more = found.size, found.more
                self._segment, self._position = found._segment, found._position
            if self._segment is None or self.size == 0:
                return b""
            with self._segment.file as file:
                stored = file.pread(self.size, self._position)
        except FileNotFoundError:
            return b""
        return stored if self._bounds is None else self._shown(stored, self._bounds)

    def _shown(self, stored: Buffer, bounds: ReadBounds, limit_bytes: int | None = None) -> Buffer:
        if not bounds.thinned:
            return stored
        return visible(stored, bounds.offset, at_end=not self.more, limit_bytes=limit_bytes)


EMPTY = Slice(0, kept=b"")


def segment_at(segments: Sequence[Segment], offset: int) -> int:
    """The place of the segment whose range holds `offset`."""
    if offset >= segments[-1].base_offset:
        return len(segments) - 1
    return max(0, bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)


def slice_of(segments: Sequence[Segment], bounds: ReadBounds) -> Slice:
    """Never waits."""
    try:
        return find(segments, bounds, wait=False)
    except NotCached:
        at = segment_at(segments, bounds.offset)
        size = min(max(bounds.max_bytes, 1), segments[at].size)
        later = replace(bounds, limited=True)  # by then the log may have grown past what this reader may see
        return Slice(size, None, 0, later, segments)


def find(segments: Sequence[Segment], bounds: ReadBounds, *, wait: bool) -> Slice:
    """The bytes that answer, all in one segment. Raises NotCached only without `wait`."""
    at = segment_at(segments, bounds.offset)
    start = segments[at].locate(bounds.offset, wait=wait)
    while start >= segments[at].size:
        at += 1
        if at == len(segments) or segments[at].base_offset >= bounds.below:
            return EMPTY
        start = segments[at].locate(bounds.offset, wait=wait)
    segment = segments[at]
    stop = segment.size
    more = at + 1 < len(segments) and segments[at + 1].base_offset < bounds.below
    if bounds.limited and (at + 1 == len(segments) or segments[at + 1].base_offset > bounds.below):
        stop = segment.locate(bounds.below, wait=wait)
    if start + bounds.max_bytes < stop:
        stop, more = _shortened(segment, start, stop, bounds, wait), True
    if stop <= start:
        return EMPTY
    return Slice(stop - start, segment, start, bounds if bounds.thinned else None, more=more)


def _shortened(segment: Segment, start: int, stop: int, bounds: ReadBounds, wait: bool) -> int:
    """The end of as many whole batches as `max_bytes` hold; of the first one if it must be sent in any case."""
    ceiling = start + bounds.max_bytes
    boundary = segment.boundary_at_or_before(ceiling, wait=wait)
    if boundary > start:
        return boundary
    for position, header in segment.headers(start, stop, wait=wait):
        if position + header.size > ceiling:
            return position + header.size if position == start and bounds.at_least_one else position
    return stop
