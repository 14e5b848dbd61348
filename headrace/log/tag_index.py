"""Which tags the parts of a segment hold, so that a view skips what it cannot match.

A segment is divided into cells: the batches that begin within the same 16 KiB of the file. Of a cell that a view has
read, 64 bits are kept: one for each of the first 62 tags of the segment, one for records without tags, one for other
tags. An index is made while views read, never by an append, and so a topic without views pays nothing. Once it covers a
whole sealed segment, it is written beside it as `NNN.tags`, best effort and without a promise:

    magic "HRTG", version (4), the segment's size (8), tags (4), cells (4); each tag: length (4), bytes; each cell:
    where it ends (8), its bits (8), both zero if no batch begins in it; CRC32C of all (4)

Correctness never rests on it: what is not known is looked at. It must not lie, though, so it goes as soon as the bytes
may become others: with a truncation, a compaction, or a crash that may have taken some back. It is kept for the very
object that a segment is; the search (tag_search.py) takes it before it reads bytes, so what it notes of bytes that have
changed since goes into an index that nobody asks any more.
"""

from __future__ import annotations

import struct
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterable

from headrace.log.derived import DerivedState, Join, LogOnDisk, StoredBatch
from headrace.log.partition_folder import PartitionFolder
from headrace.log.segment import Segment, segment_path
from headrace.model.tag_filter import MATCHES
from headrace.wire.checksum import crc32c
from headrace.world.disk import Buffer

SUFFIX = ".tags"
CELL_BYTES = 16 << 10
_TAGS = 62
_UNTAGGED, _OTHERS = 1 << 62, 1 << 63
_EVERYTHING = (1 << 64) - 1
_AT_ONCE = 8  # segments of one log whose index is in memory, about 1 MB for each GiB
_HEAD = struct.Struct(">4sIQII")
_LENGTH, _CRC = struct.Struct(">I"), struct.Struct(">I")
_MAGIC, _VERSION = b"HRTG", 1
ANY, ALL, NONE = range(len(MATCHES))


class SegmentTags:
    """The index of one segment. Used by the thread that searches."""

    __slots__ = ("_bits", "ends", "masks", "stored")

    def __init__(self) -> None:
        self._bits: dict[bytes, int] = {}
        self.ends = array("Q")  # by cell: where it ends, 0 if it is not known
        self.masks = array("Q")
        self.stored = False

    def mask_of(self, tags: Iterable[bytes] | None, *, untagged: bool) -> int:
        """The bits of these tags; None: of tags that are too many to be told."""
        if tags is None:
            return _EVERYTHING
        mask = _UNTAGGED if untagged else 0
        for tag in tags:
            bit = self._bits.get(tag)
            if bit is None and len(self._bits) < _TAGS:
                bit = self._bits[tag] = 1 << len(self._bits)
            mask |= _OTHERS if bit is None else bit
        return mask

    def note(self, cell: int, end: int, mask: int) -> None:
        missing = cell + 1 - len(self.ends)
        if missing > 0:
            self.ends.extend([0] * missing)
            self.masks.extend([0] * missing)
        self.ends[cell], self.masks[cell] = end, mask

    def knows(self, position: int) -> bool:
        cell = position // CELL_BYTES
        return cell < len(self.ends) and self.ends[cell] > position

    def skip(self, position: int, wanted: tuple[bytes, ...], match: int) -> int:
        """The first place from here on that may hold a matching record, or of which nothing is known."""
        ends, masks, full = self.ends, self.masks, len(self._bits) == _TAGS
        unknown = _OTHERS if full else 0  # a tag that is in no cell has no bit
        bits = [self._bits.get(tag, unknown) for tag in wanted]
        some = 0
        for bit in bits:
            some |= bit
        exact = some & ~_OTHERS
        while True:
            cell = position // CELL_BYTES
            if cell >= len(ends) or ends[cell] <= position:
                return position
            mask = masks[cell]
            if mask == _EVERYTHING:  # it may hold tags that have no bit
                return position
            if mask & some if match == ANY else mask & ~exact if match == NONE else all(mask & bit for bit in bits):
                return position
            position = ends[cell]

    def covers(self, size: int) -> bool:
        """Whether every batch of a segment of this size is in a known cell."""
        position = 0
        while position < size:
            cell = position // CELL_BYTES
            if cell >= len(self.ends) or self.ends[cell] <= position:
                return False
            position = self.ends[cell]
        return position == size

    def encode(self, size: int) -> bytes:
        parts = [_HEAD.pack(_MAGIC, _VERSION, size, len(self._bits), len(self.ends))]
        for tag in self._bits:
            parts += (_LENGTH.pack(len(tag)), tag)
        numbers = array("Q", (number for cell in zip(self.ends, self.masks, strict=True) for number in cell))
        parts.append(struct.pack(f">{len(numbers)}Q", *numbers))
        body = b"".join(parts)
        return body + _CRC.pack(crc32c(body))


def decode(data: Buffer, size: int) -> SegmentTags | None:
    """None if it is damaged, or not of a segment of this size."""
    if len(data) < _HEAD.size + 4 or crc32c(data[:-4]) != _CRC.unpack_from(data, len(data) - 4)[0]:
        return None
    magic, version, said, tags, cells = _HEAD.unpack_from(data)
    if (magic, version, said) != (_MAGIC, _VERSION, size):
        return None
    found, at = SegmentTags(), _HEAD.size
    for place in range(tags):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        found._bits[bytes(data[at : at + length])] = 1 << place
        at += length
    numbers = struct.unpack_from(f">{2 * cells}Q", data, at)
    found.ends, found.masks = array("Q", numbers[::2]), array("Q", numbers[1::2])
    found.stored = True
    return found


class TagIndexes(DerivedState):
    """The indexes of one log. `of` and `store` are called by the thread that searches."""

    __slots__ = ("_cuts", "_folder", "_kept", "_lock")

    hears = 0
    suffixes = (SUFFIX,)

    def __init__(self) -> None:
        self._folder: PartitionFolder | None = None
        self._kept: OrderedDict[int, tuple[Segment, SegmentTags]] | None = None  # most logs have none
        self._lock = threading.Lock()  # a file is not written while it is taken away
        self._cuts = 0  # how often something was forgotten

    def of(self, segment: Segment) -> SegmentTags:
        with self._lock:
            kept, cuts = self._kept, self._cuts
            known = None if kept is None else kept.get(segment.base_offset)
            if kept is not None and known is not None and known[0] is segment:
                kept.move_to_end(segment.base_offset)
                return known[1]
        tags = self._loaded(segment) or SegmentTags()
        with self._lock:
            if cuts != self._cuts:
                return SegmentTags()  # the file may tell of what is gone by now: nobody else sees what is noted in this
            if self._kept is None:
                self._kept = OrderedDict()
            self._kept[segment.base_offset] = segment, tags
            while len(self._kept) > _AT_ONCE:
                self._kept.popitem(last=False)
        return tags

    def _loaded(self, segment: Segment) -> SegmentTags | None:
        if segment.active or self._folder is None:
            return None
        try:
            data = self._folder.disk.read_bytes(segment_path(segment.directory, segment.base_offset, SUFFIX))
        except (OSError, MemoryError):
            return None
        return decode(data, segment.size)

    def store(self, segment: Segment, tags: SegmentTags) -> None:
        """Write the index of a sealed segment once it is complete. Blocks; a failure costs another look at a start."""
        folder, kept = self._folder, self._kept
        if tags.stored or segment.active or folder is None or kept is None or not tags.covers(segment.size):
            return
        with self._lock:
            known = kept.get(segment.base_offset)
            if known is None or known[1] is not tags or folder.abandoned:
                return
            tags.stored = True
            try:
                if folder.disk.exists(segment_path(segment.directory, segment.base_offset, ".log")):
                    path = segment_path(segment.directory, segment.base_offset, SUFFIX)
                    folder.disk.write_atomic(path, tags.encode(segment.size))
            except (OSError, MemoryError):
                return

    # -- as a derived state -------------------------------------------------------------------------------------------

    def load(self, log: LogOnDisk) -> int:
        self._folder = log.folder
        bases = [segment.base_offset for segment in log.segments]
        sealed_before = log.end_offset if log.clean else log.safe_to
        following = dict(zip(bases, [*bases[1:], sealed_before + 1], strict=True))
        self._remove([base for base in log.named(SUFFIX) if following.get(base, sealed_before + 1) > sealed_before])
        return log.end_offset

    def appended(self, batch: StoredBatch) -> None:
        pass

    def cut_back(self, log: LogOnDisk) -> None:
        self._forget(log.segments[-1].base_offset)

    def restarted(self, log: LogOnDisk) -> None:
        self._folder = log.folder
        self._forget(0)

    def joining(self, join: Join) -> None:
        self._forget(join.first, join.following)

    def _forget(self, first: int, following: int = 1 << 62) -> None:
        """What is known of segments from `first` on, and before `following`."""
        with self._lock:
            self._cuts += 1
            kept = self._kept
            for base in [base for base in kept or () if first <= base < following]:
                if kept is not None:
                    kept.pop(base, None)
            if self._folder is not None:
                names = [name for name in self._folder.names() if name.endswith(SUFFIX)]
                bases = (int(name[: -len(SUFFIX)]) for name in names)
                self._remove([base for base in bases if first <= base < following])

    def _remove(self, bases: list[int]) -> None:
        if self._folder is not None:
            for base in bases:
                self._folder.remove(base, (SUFFIX,))
