"""What a view shows of a log: the batches from an offset on with only the records that its filter keeps.

Called by views (api/view_content.py) in a thread of its own, which may wait for the disk. A search skips the cells that
cannot match (tag_index.py) and opens the batches of the others. A batch whose records all match is given as it is
stored, another is written anew with its codec, base offset and last offset, so that a reader's position moves as on a
compacted topic. What was written anew is kept for a while, for other readers of equal views.

Never given: control batches, and for read_committed the records of aborted transactions; so a reader needs no list of
these. A batch that cannot be opened, or does not match its CRC, is given as it is stored: its reader gets the error
that a reader of the base gets, and no record is dropped silently.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from headrace.log.cleaning import Decided
from headrace.log.partition_log import PartitionLog
from headrace.log.reading import segment_at
from headrace.log.segment import Segment
from headrace.log.tag_index import CELL_BYTES, SegmentTags
from headrace.model.tag_filter import MATCHES, TAG_HEADER, TagFilter
from headrace.wire.batches import HEADER_BYTES, MAGIC, BatchHeader, Buffer, crc_ok, read_header, walk
from headrace.wire.errors import Malformed
from headrace.wire.records import last_record_offset
from headrace.wire.tags import tagged

OPEN_BYTES = 1 << 20  # that one search opens, about
_WINDOW_BYTES = 256 << 10
_NAME = TAG_HEADER.encode()
_ENTRY_BYTES = 400  # of one kept batch, beside its bytes


class Wanted(Struct, frozen=True):
    """A filter as the search compares it."""

    tags: tuple[bytes, ...]
    match: int

    @staticmethod
    def of(filter_: TagFilter) -> Wanted:
        return Wanted(tuple(dict.fromkeys(tag.encode() for tag in filter_.tags)), MATCHES.index(filter_.match))


_Key = tuple[object, int, int, int, Wanted]


class KeptBatches:
    """Batches written anew, for as long as there is room. Each is known by what it was made of: log, offset, leader
    epoch and CRC. Used by the searching thread alone."""

    def __init__(self, max_bytes: int = 32 << 20) -> None:
        self._room = max_bytes
        self._batches: OrderedDict[_Key, bytes | None] = OrderedDict()

    def get(self, key: _Key) -> tuple[bytes | None] | None:
        """What is left of the batch: None, if that is all of it. Outside of a tuple: it is not known."""
        try:
            found = self._batches[key]
        except KeyError:
            return None
        self._batches.move_to_end(key)
        return (found,)

    def keep(self, key: _Key, left: bytes | None) -> None:
        self._batches[key] = left
        self._room -= _ENTRY_BYTES + len(left or b"")
        while self._room < 0 and self._batches:
            _, gone = self._batches.popitem(last=False)
            self._room += _ENTRY_BYTES + len(gone or b"")


class Found(Struct):
    """What a search has come to."""

    next_offset: int  # everything before it was looked at
    at_end: bool = False  # there is nothing behind it yet
    batches: list[Buffer] = []
    size: int = 0
    scanned_bytes: int = 0
    opened_bytes: int = 0
    last_end: int = -1  # the offset behind the last batch that is given


class Search:
    """One search in one log, as it is now. `run` is called once, in another thread."""

    def __init__(self, log: PartitionLog, place: object, wanted: Wanted, kept: KeptBatches) -> None:
        self._log = log
        self._segments: Sequence[Segment] = log.segments
        self._indexes = log.tag_indexes
        self._place = place
        self._wanted = wanted
        self._kept = kept
        self._decided: Decided | None = None
        self._offset = self._max_bytes = 0

    def run(self, offset: int, below: int, max_bytes: int, *, stable: bool) -> Found:
        """From `offset` on, before `below`; at most `max_bytes`, but one batch in any case."""
        found = Found(offset)
        self._offset, self._max_bytes = offset, max_bytes
        if stable and self._log.aborted_txns:
            spans: Mapping[int, Sequence[tuple[int, int]]] = self._log.aborted_txns.spans()
            self._decided = Decided(spans)
        segments = self._segments
        try:
            for at in range(segment_at(segments, offset), len(segments)):
                if segments[at].base_offset >= below:
                    break
                ends = segments[at + 1].base_offset if at + 1 < len(segments) else None
                if not self._run_through(segments[at], ends, below, found):
                    return found
        except FileNotFoundError:
            return found  # retention took the segment away: the next read says so
        found.next_offset, found.at_end = max(found.next_offset, below), True
        return found

    def _run_through(self, segment: Segment, ends: int | None, below: int, found: Found) -> bool:
        """Whether there was room for all of the segment, as far as it may be read."""
        tags = self._indexes.of(segment)  # before any byte is read
        start = segment.locate(found.next_offset, wait=True) if found.next_offset > segment.base_offset else 0
        stop = segment.size if ends is not None and ends <= below else segment.locate(below, wait=True)
        walk_ = _CellWalk(tags, start)
        position = start
        while position < stop:
            skipped = min(stop, tags.skip(position, self._wanted.tags, self._wanted.match))
            if skipped > position:
                found.scanned_bytes += skipped - position
                walk_.jumped(skipped)
                position = skipped
                continue
            if found.size >= self._max_bytes or found.opened_bytes >= OPEN_BYTES:
                break
            position, is_full = self._look(segment, position, stop, walk_, found)
            if is_full:
                break
        if position < stop:
            found.next_offset = read_header(segment.peek(position, HEADER_BYTES, wait=True)).base_offset
            return False
        if position == segment.size and not segment.active:
            walk_.finish(position)
            self._indexes.store(segment, tags)
        if ends is not None:
            found.next_offset = max(found.next_offset, min(ends, below))
        return True

    def _look(self, segment: Segment, position: int, stop: int, cells: _CellWalk, found: Found) -> tuple[int, bool]:
        """Go over the batches of a window: where it has come to, and whether it has enough."""
        window = segment.peek(position, min(_WINDOW_BYTES, stop - position), wait=True)
        first = read_header(window)
        if first.magic != MAGIC or first.size > stop - position:
            raise segment.damage(position)
        if first.size > len(window):
            window = segment.peek(position, first.size, wait=True)
        end = position
        for at, header in walk(window):
            here = position + at
            enters = cells.enter(here)
            if enters and here > position and (found.opened_bytes >= OPEN_BYTES or cells.skips(here, self._wanted)):
                return here, found.opened_bytes >= OPEN_BYTES
            left = self._left_of(window, at, header, cells, found)
            if left is not None and header.base_offset < self._offset and _ends_before(left, self._offset):
                left = None
            if left is not None:
                if found.batches and found.size + len(left) > self._max_bytes:
                    cells.lost()
                    return here, True
                found.batches.append(left)
                found.size += len(left)
                found.last_end = header.next_offset
            end = here + header.size
            found.scanned_bytes += header.size
            cells.behind = end
        if end == position:
            raise segment.damage(position)
        return end, found.size >= self._max_bytes

    def _left_of(self, window: Buffer, at: int, header: BatchHeader, cells: _CellWalk, found: Found) -> Buffer | None:
        """What is given of a batch; None if that is nothing."""
        if header.is_control or not header.record_count:
            return None
        if self._decided is not None and self._decided.is_aborted(header):
            cells.mark_all()
            return None
        whole = memoryview(window)[at : at + header.size]
        key = (self._place, header.base_offset, header.leader_epoch, header.crc, self._wanted)
        known = self._kept.get(key)
        if known is not None:
            cells.lost()
            found.opened_bytes += header.size // 8  # going over it takes time, too
            return whole if known[0] is None else known[0] or None
        if not crc_ok(window, at, header):
            cells.mark_all()
            return whole
        try:
            result = tagged(window, at, _NAME, self._wanted.tags, self._wanted.match)
        except Malformed:
            cells.mark_all()
            return whole
        found.opened_bytes += result.opened_bytes
        cells.mark(result.tags, untagged=result.untagged)
        left = None if result.whole else bytes(result.batch or b"")
        self._kept.keep(key, left)
        return whole if left is None else left or None


def _ends_before(batch: Buffer, offset: int) -> bool:
    """Whether a reader at this offset sees no record of the batch. Clients cannot cope with such an answer alone."""
    try:
        return last_record_offset(batch) < offset
    except Malformed:
        return False


class _CellWalk:
    """Gathers what a cell holds, while a search goes over the batches of a segment; notes it if it saw all of it."""

    __slots__ = ("_cell", "_complete", "_mask", "_tags", "behind")

    def __init__(self, tags: SegmentTags, start: int) -> None:
        self._tags = tags
        self._cell = -1
        self._complete = False
        self._mask = 0
        self.behind = start if start == 0 else -1  # the end of what was gone over without a gap

    def enter(self, position: int) -> bool:
        """The next batch begins here. Whether a new cell does."""
        cell = position // CELL_BYTES
        if cell == self._cell:
            return False
        reached = self.behind == position
        if reached:
            self.finish(position)
        self._cell, self._mask, self._complete = cell, 0, reached
        return True

    def jumped(self, position: int) -> None:
        """Cells that are known were skipped, up to here."""
        self._cell, self._complete, self.behind = -1, False, position

    def skips(self, position: int, wanted: Wanted) -> bool:
        return self._tags.skip(position, wanted.tags, wanted.match) > position

    def mark(self, tags: list[bytes] | None, *, untagged: bool) -> None:
        self._mask |= self._tags.mask_of(tags, untagged=untagged)

    def mark_all(self) -> None:
        self._mask |= self._tags.mask_of(None, untagged=True)

    def lost(self) -> None:
        """Something of this cell was not looked at."""
        self._complete = False

    def finish(self, end: int) -> None:
        if self._cell >= 0 and self._complete:
            self._tags.note(self._cell, end, self._mask)
        self._cell = -1
