"""Which sealed segments a log consists of, so that a start notices one that is missing, cut, or not this log's.

File `sealed-segments`, big-endian: magic "HRSG" (4), version 1 (2), zeros (2), number of entries (4); for each sealed
segment its base offset (8), the offset after its last batch (8), its size (8), and the CRC32C of its first batch's
header (4); at the end the CRC32C of all that (4).

It is written with a checkpoint after a segment was sealed, and replaced whole. An entry that no file belongs to any
more (retention took it away) does no harm. One whose file is about to become another one, by truncation or compaction,
must not survive: so the list is removed, durably, before the file changes (`cut_back`, `joining`), and written again
with the next checkpoint. A segment that is not in the list is measured: its last batch must end where the next segment
begins, since every segment keeps its last batch (cleaning.py).

Recovery calls `check` before it scans. It looks only at what lies before the recovery point; the scan looks at the
rest. What holds: a file that is another one's is never served, it is renamed to `NNN.log.foreign`; of a segment that
was cut the whole batches are served; nothing is deleted.
"""

from __future__ import annotations

import itertools
import logging
import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct

from headrace.log.derived import DerivedState, Join, LogOnDisk, Moment, Occasion, Store, StoredBatch, Trim
from headrace.log.partition_folder import PartitionFolder
from headrace.log.segment import INDEX_SUFFIXES, Segment, segment_path
from headrace.wire.batches import HEADER_BYTES, BatchHeader
from headrace.wire.checksum import crc32c
from headrace.world.disk import is_lack

logger = logging.getLogger(__name__)

NAME = "sealed-segments"
FOREIGN = ".foreign"
_HEAD = struct.Struct(">4sHHI")
_ENTRY = struct.Struct(">qqqI")
_CRC = struct.Struct(">I")
_MAGIC = b"HRSG"
_VERSION = 1

WholeBatches = Callable[[Segment], tuple[int, int]]
"""(size, next offset) of the sound batches at the start of a segment; recovery.py reads them."""


class Entry(Struct, frozen=True, gc=False):
    base_offset: int
    next_offset: int
    size: int
    mark: int
    """The CRC32C of the first batch's header: tells this file from another one of the same size."""


class Gap(Struct, frozen=True):
    """Offsets that a log had and has no longer, or that cannot be read."""

    first_offset: int
    next_offset: int
    why: str
    unreadable: bool = False

    def told(self, directory: Path) -> str:
        offsets = f"{directory}: offsets {self.first_offset} to {self.next_offset - 1}"
        if self.unreadable:
            return f"{offsets} cannot be read: {self.why}; consumers get an error there. Check the disk"
        return (
            f"{offsets} are missing: {self.why}; consumers skip to offset {self.next_offset}. If there is a copy, stop "
            f"the broker and restore it"
        )


class SealedSegments(DerivedState):
    __slots__ = ("_entries", "_listed", "gaps")

    hears = 0

    def __init__(self) -> None:
        self.gaps: tuple[Gap, ...] = ()
        """Found when the log was opened, and not closed since."""
        self._entries: dict[int, Entry] = {}
        self._listed = True  # the file says what is known here

    # -- at a start ---------------------------------------------------------------------------------------------------

    def check(self, folder: PartitionFolder, segments: list[Segment], whole: WholeBatches) -> list[Segment]:
        """Those of the segments that are this log's; the others are set aside. Notes what is missing. Blocks."""
        point = folder.checkpoint
        if point.restart_at is not None or not point.generation:
            return segments  # it starts over; or nothing was promised yet
        below = point.recovery_point if point.truncate_to is None else min(point.recovery_point, point.truncate_to)
        stored = load(folder)
        entries = {entry.base_offset: entry for entry in stored or () if entry.next_offset <= below}
        checking = _Checking(folder, entries, whole, point.start_offset)
        scanned_from = _scanned_from(segments, point.segment, below)
        bases = [segment.base_offset for segment in segments[: scanned_from + 1]]
        kept = [
            segment for at, segment in enumerate(segments[:scanned_from]) if checking.belongs(segment, bases[at + 1 :])
        ]
        if bases and bases[-1] <= below:
            checking.reach(bases[-1])
        for segment in segments[scanned_from:]:
            if bases[-1] < segment.base_offset < below and bases[-1] == point.segment:
                checking.set_aside(segment, "its offsets are in another segment")
            else:
                kept.append(segment)
        self._entries = checking.found
        self._listed = not checking.found or (stored is not None and checking.found.keys() <= entries.keys())
        self.gaps = tuple(checking.gaps)
        return kept

    @property
    def unwritten(self) -> bool:
        """The next checkpoint has something to write."""
        return not self._listed

    def load(self, log: LogOnDisk) -> int:
        return log.end_offset  # `check` has done it

    def appended(self, batch: StoredBatch) -> None:
        pass

    # -- while the log is open ----------------------------------------------------------------------------------------

    def cut_back(self, log: LogOnDisk) -> None:
        self._forget(log.folder, lambda base: base >= log.segments[-1].base_offset)
        self.gaps = tuple(gap for gap in self.gaps if gap.first_offset < log.end_offset)

    def restarted(self, log: LogOnDisk) -> None:
        self._forget(log.folder, lambda base: True)
        self.gaps = ()

    def trimmed(self, trim: Trim) -> None:
        if self.gaps:
            self.gaps = tuple(gap for gap in self.gaps if gap.next_offset > trim.start_offset)

    def joining(self, join: Join) -> None:
        self._forget(join.folder, lambda base: join.first <= base < join.following)

    def _forget(self, folder: PartitionFolder, gone: Callable[[int], bool]) -> None:
        """Take the list away. Whoever calls syncs the names before a file becomes another one."""
        folder.disk.remove(folder.directory / NAME)
        folder.names_unsynced = True
        self._entries = {base: entry for base, entry in self._entries.items() if not gone(base)}
        self._listed = False

    def snapshot(self, moment: Moment) -> Store | None:
        if moment.occasion is not Occasion.CHECKPOINT or len(moment.segments) < 2:
            return None
        if self._listed and moment.segments[-2].base_offset in self._entries:
            return None
        return Store(partial(self._write, moment.folder, tuple(moment.segments)), durable=False)

    def _write(self, folder: PartitionFolder, segments: Sequence[Segment]) -> None:
        """Best effort: what is not in the list is measured at the next start."""
        try:
            found = [
                self._entries.get(segment.base_offset)
                or Entry(segment.base_offset, following.base_offset, segment.size, _mark(segment))
                for segment, following in itertools.pairwise(segments)
            ]
            folder.replace_file(NAME, encode(found))
        except (OSError, MemoryError):
            return
        self._entries = {entry.base_offset: entry for entry in found}
        self._listed = True


class _Checking:
    """Goes over the segments of one folder, in the order of their offsets."""

    def __init__(self, folder: PartitionFolder, listed: dict[int, Entry], whole: WholeBatches, start: int) -> None:
        self.gaps: list[Gap] = []
        self.found: dict[int, Entry] = {}
        self._folder = folder
        self._listed = listed
        self._whole = whole
        self._covered = start
        self._reasons: dict[int, str] = {}  # why the offsets from there on are missing

    def belongs(self, segment: Segment, later: Sequence[int]) -> bool:
        """Whether the log goes on with this segment. `later` are the base offsets of those after it."""
        base = segment.base_offset
        listed = self._listed.get(base)
        try:
            entry = self._fitting(segment, later) if listed is None else self._as_listed(segment, listed)
        except OSError as error:
            if is_lack(error):
                raise
            self._unreadable(segment, later[0] if listed is None else listed.next_offset, error)
            return True
        if entry is None:
            return False
        self.reach(base)
        self.found[base] = entry
        self._covered = max(self._covered, entry.next_offset)
        return True

    def _unreadable(self, segment: Segment, next_offset: int, error: OSError) -> None:
        """It stays part of the log: reads in it fail until the disk gives its bytes again."""
        self.reach(segment.base_offset)
        why = f"segment {segment.file.path.name}: {error.strerror}"
        self.gaps.append(Gap(segment.base_offset, next_offset, why, unreadable=True))
        self._covered = max(self._covered, next_offset)

    def reach(self, base_offset: int) -> None:
        """A segment begins here: what lies between it and the one before it is missing."""
        if base_offset <= self._covered:
            return
        first = self._covered
        why = self._reasons.get(first)
        if why is None and first in self._listed:
            why = f"segment {segment_path(self._folder.directory, first, '.log').name} is not there"
        self.gaps.append(Gap(first, base_offset, why or "no segment has them"))
        self._covered = base_offset

    def _as_listed(self, segment: Segment, entry: Entry) -> Entry | None:
        if segment.size < HEADER_BYTES:
            return self._shortened(segment, entry)
        if _mark(segment) != entry.mark:
            self.set_aside(segment, "it is not the file that was sealed")
            return None
        if segment.size < entry.size:
            return self._shortened(segment, entry)
        segment.size = entry.size
        return entry

    def _shortened(self, segment: Segment, entry: Entry) -> Entry | None:
        """What whole batches it has left."""
        name, had = segment.file.path.name, segment.size
        size, next_offset = self._whole(segment)
        self._reasons[next_offset] = f"segment {name} is damaged at byte {size} of {max(entry.size, had)}"
        if not size:
            self.set_aside(segment, "no batch in it is whole")
            return None
        segment.size = size
        return Entry(entry.base_offset, next_offset, size, _mark(segment))

    def _fitting(self, segment: Segment, later: Sequence[int]) -> Entry | None:
        """By its own batches, where the list does not have it."""
        base = segment.base_offset
        if base < self._covered and self.found:
            self.set_aside(segment, "its offsets are in another segment")
            return None
        ends = set(itertools.islice(later, 1 + next((n for n, b in enumerate(later) if b in self._listed), len(later))))
        try:
            first, last = _ends(segment)
        except OSError as error:
            if is_lack(error):
                raise
            first = last = None
        if first is None or last is None:
            if self._whole(segment)[0] or segment.size < HEADER_BYTES:
                return self._shortened(segment, Entry(base, later[0], segment.size, 0))
            self.set_aside(segment, "it does not begin with a batch of its offsets")
            return None
        if not base <= first.base_offset < later[0] or (last.next_offset > later[0] and last.next_offset not in ends):
            self.set_aside(segment, f"it has offsets {first.base_offset} to {last.next_offset - 1}")
            return None
        return Entry(base, last.next_offset, segment.size, _mark(segment))

    def set_aside(self, segment: Segment, why: str) -> None:
        disk, path = self._folder.disk, segment.file.path
        free = (path.with_name(f"{path.name}{FOREIGN}{number or ''}") for number in itertools.count())
        aside = next(name for name in free if not disk.exists(name))
        segment.file.rename(aside)
        segment.file.close()
        self._folder.remove(segment.base_offset, INDEX_SUFFIXES)
        self._folder.sync_names()
        self._reasons.setdefault(segment.base_offset, f"segment {path.name} is wrong and was renamed to {aside.name}")
        logger.error("%s does not belong there: %s; renamed to %s", path, why, aside.name)


def _scanned_from(segments: Sequence[Segment], point: int, below: int) -> int:
    """The place of the segment at which the scan begins; those before it are judged here."""
    at = [place for place, segment in enumerate(segments) if segment.base_offset <= below]
    named = [place for place in at if segments[place].base_offset == point]
    return named[-1] if named else max(at, default=0)


def _mark(segment: Segment) -> int:
    return crc32c(segment.peek(0, HEADER_BYTES, wait=True))


def _ends(segment: Segment) -> tuple[BatchHeader | None, BatchHeader | None]:
    """The headers of its first and last batch."""
    if not segment.size:
        return None, None
    _, first = next(segment.headers(0, segment.size, wait=True))
    start = segment.index(wait=True).boundary_at_or_before(segment.size - 1)
    _, last = deque(segment.headers(start, segment.size, wait=True), maxlen=1).pop()
    return first, last


# -- the file ---------------------------------------------------------------------------------------------------------


def encode(entries: Iterable[Entry]) -> bytes:
    packed = [_ENTRY.pack(entry.base_offset, entry.next_offset, entry.size, entry.mark) for entry in entries]
    body = _HEAD.pack(_MAGIC, _VERSION, 0, len(packed)) + b"".join(packed)
    return body + _CRC.pack(crc32c(body))


def decode(data: bytes) -> list[Entry] | None:
    """None if it is damaged or of another version."""
    if len(data) < _HEAD.size + _CRC.size or crc32c(data[: -_CRC.size]) != _CRC.unpack_from(data, len(data) - 4)[0]:
        return None
    magic, version, _, count = _HEAD.unpack_from(data)
    if (magic, version, _HEAD.size + count * _ENTRY.size) != (_MAGIC, _VERSION, len(data) - _CRC.size):
        return None
    return [Entry(*fields) for fields in _ENTRY.iter_unpack(data[_HEAD.size : -_CRC.size])]


def load(folder: PartitionFolder) -> list[Entry] | None:
    """None if there is no list that can be used: the segments are measured then."""
    path = folder.directory / NAME
    try:
        found = decode(folder.disk.read_bytes(path))
    except FileNotFoundError:
        return None
    if found is None:
        logger.warning("%s is damaged or of another version; it is made again from the segments", path)
    return found
