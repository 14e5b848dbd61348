"""Which transactions of a partition were aborted: what a read_committed reader is told, so that it can skip them.

A derived state (derived.py), told of abort markers; asked by every read_committed fetch, so it is in memory whole, as
numbers in one array: producer id, first offset, offset of the marker, last stable offset. Entries
are in the order of their markers. The last stable offset is that of the moment after the marker: no transaction that
was aborted later begins before it, so a search can stop there.

File `NNN.txnindex`, big-endian: the entries whose markers lie in the segment NNN, and no file where there are none.

    entry   producer id (8), first offset (8), marker (8), last stable offset (8), CRC32C of these (4)

It is synced before the log's synced offset passes the marker: a lost entry would show aborted records. What lies behind
the recovery point is found again in the log, so entries there do not count. Invariant: the first `saved` entries are on
disk, the k-th entry of a segment at 36 * k.
"""

from __future__ import annotations

import logging
import struct
from array import array
from bisect import bisect_left
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from headrace.log import producer_snapshots as snapshots
from headrace.log.derived import MARKER, DerivedState, Join, LogOnDisk, Moment, Occasion, Store, StoredBatch, Trim
from headrace.log.partition_folder import PartitionFolder
from headrace.log.producer_state import EndedTxn, ProducerStates
from headrace.wire.checksum import crc32c
from headrace.world.disk import Disk

logger = logging.getLogger(__name__)

SUFFIX = ".txnindex"
_FIELDS = struct.Struct(">qqqq")
_CRC = struct.Struct(">I")
_ENTRY_BYTES = _FIELDS.size + _CRC.size
_WIDTH = 4
_NO_END = 1 << 62
_FIRST, _MARKER, _STABLE = 1, 2, 3  # places in an entry


class Unsaved(NamedTuple):
    """What is to be written into the file of one segment, from `position` on."""

    base_offset: int
    position: int
    entries: bytes

    @property
    def length(self) -> int:
        return len(self.entries) // _ENTRY_BYTES


class AbortedTxns(DerivedState):
    __slots__ = ("_numbers", "_producers", "saved")

    hears = MARKER
    suffixes = (SUFFIX,)

    def __init__(self, producers: ProducerStates) -> None:
        """`producers` is as of the batch before the one that this is told of: it knows which transactions are open."""
        self._producers = producers
        self._numbers = array("q")
        self.saved = 0

    def __len__(self) -> int:
        return len(self._numbers) // _WIDTH

    def add(self, ended: EndedTxn) -> None:
        """The next abort in the order of the log."""
        self._numbers.extend(ended)

    def between(self, offset: int, below: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of those that a reader meets from `offset` on, before `below`."""
        numbers = self._numbers  # another thread may put a shorter array in its place
        found: list[tuple[int, int]] = []
        for at in range(_WIDTH * _place(numbers, offset), len(numbers), _WIDTH):
            if numbers[at + _FIRST] < below:
                found.append((numbers[at], numbers[at + _FIRST]))
            if numbers[at + _STABLE] >= below:
                break
        return found

    def spans(self) -> dict[int, list[tuple[int, int]]]:
        """By producer id, (first offset, marker) of each of its aborted transactions."""
        numbers, spans = self._numbers, dict[int, list[tuple[int, int]]]()
        for at in range(0, len(numbers), _WIDTH):
            spans.setdefault(numbers[at], []).append((numbers[at + _FIRST], numbers[at + _MARKER]))
        return spans

    def markers_within(self, offset: int, below: int) -> int:
        """How many entries have their marker from `offset` on, before `below`."""
        return _place(self._numbers, below) - _place(self._numbers, offset)

    def cut_tail(self, offset: int) -> None:
        """The log now ends at `offset`."""
        self._replace(self._numbers[: _WIDTH * _place(self._numbers, offset)], 0)

    def cut_head(self, offset: int) -> None:
        """No marker before `offset` is left."""
        gone = _place(self._numbers, offset)
        if gone:
            self._replace(self._numbers[_WIDTH * gone :], gone)

    def drop(self, markers: Collection[int]) -> None:
        """These markers are no longer in the log, nor are records of their transactions. All entries are saved."""
        numbers = self._numbers
        places = [_place(numbers, marker) for marker in markers]
        known = {place for place, marker in zip(places, markers, strict=True) if self._marker(place) == marker}
        if known:
            kept = [place for place in range(len(self)) if place not in known]
            left = array("q", [number for place in kept for number in numbers[_WIDTH * place : _WIDTH * (place + 1)]])
            self._replace(left, len(known))

    def _marker(self, place: int) -> int:
        return self._numbers[_WIDTH * place + _MARKER] if place < len(self) else -1

    def _replace(self, numbers: array[int], gone_before: int) -> None:
        self._numbers = numbers
        self.saved = max(0, min(self.saved - gone_before, len(self)))

    # -- as derived state ---------------------------------------------------------------------------------------------

    def load(self, log: LogOnDisk) -> int:
        """Entries behind `safe_to` do not count: a crash may have taken their markers. If a file is damaged, all are
        made anew from the log."""
        folder, bases = log.folder, [segment.base_offset for segment in log.segments]
        named = log.named(SUFFIX)
        for base in named:
            if base not in bases:  # of no segment
                folder.disk.remove(_path(folder.directory, base))
        self._numbers = array("q")
        is_sound = not named or self._take_files(folder, bases, log.checkpoint.segment)
        if is_sound and log.clean:
            self.saved = len(self)
            return log.end_offset
        if not is_sound:
            self._numbers = self._made_anew(log)
        self.cut_tail(log.safe_to)
        for base, end in zip(bases, (*bases[1:], _NO_END), strict=True):
            if is_sound:
                cut_file(folder.disk, folder.directory, base, self.markers_within(base, end))
            else:
                replace_file(folder.disk, folder.directory, base, self.encoded(base, end))
        self.saved = len(self)
        return log.safe_to

    def _take_files(self, folder: PartitionFolder, bases: Sequence[int], torn_from: int) -> bool:
        """Add what the files of these segments have; False if one is damaged. Those of the segment `torn_from` and
        later ones may end in rubbish: it was being written, and the log has it."""
        for base, end in zip(bases, (*bases[1:], _NO_END), strict=True):
            try:
                data = folder.disk.read_bytes(_path(folder.directory, base))
            except FileNotFoundError:
                continue
            if not (data and self._take(data, end)) and base < torn_from:
                logger.warning("%s is damaged: it is made again from the log", _path(folder.directory, base))
                return False
        return True

    def _made_anew(self, log: LogOnDisk) -> array[int]:
        producers = ProducerStates()
        made = AbortedTxns(producers)
        oldest = [offset for offset in log.named(snapshots.SUFFIX) if offset <= log.segments[0].base_offset]
        known_to = snapshots.newest(producers, log.folder, oldest)
        for batch in log.batches(known_to, log.safe_to):
            made.appended(batch)
            producers.remember_batch(batch.header, batch.marker, batch.now_ms)
        return made._numbers

    def appended(self, batch: StoredBatch) -> None:
        marker = batch.marker() if batch.header.is_control else None
        if marker is not None and not marker.commit:
            ended = self._producers.ended_by(batch.header)
            if ended is not None:
                self.add(ended)

    def cut_back(self, log: LogOnDisk) -> None:
        self.cut_tail(log.end_offset)
        base = log.segments[-1].base_offset
        kept = self.markers_within(base, log.end_offset)
        cut_file(log.folder.disk, log.folder.directory, base, kept)

    def restarted(self, log: LogOnDisk) -> None:
        self._replace(array("q"), 0)

    def trimmed(self, trim: Trim) -> None:
        """Whoever still reads a file must know which of its records were aborted."""
        self.cut_head(trim.readable_from)

    def joining(self, join: Join) -> None:
        """Make one file for what is to become one segment, and forget the transactions of which nothing is left.
        Nothing is lost if the swap does not come about: their records went in an earlier run."""
        folder = join.folder
        with join.lock:
            unsaved = self.unsaved(join.bases)
        self._save(folder, unsaved)
        with join.lock:
            self.drop(join.dropped_markers)
            entries = self.encoded(join.first, join.following)
        replace_file(folder.disk, folder.directory, join.first, entries)

    def snapshot(self, moment: Moment) -> Store | None:
        if moment.occasion not in (Occasion.SYNC, Occasion.CHECKPOINT) or len(self) == self.saved:
            return None
        return Store(partial(self._save, moment.folder, self.unsaved(moment.bases)), durable=True)

    def _save(self, folder: PartitionFolder, unsaved: Sequence[Unsaved]) -> None:
        if unsaved:
            save(folder.disk, folder.directory, unsaved)
            self.saved += sum(piece.length for piece in unsaved)
            folder.names_unsynced = True

    # -- on disk ------------------------------------------------------------------------------------------------------

    def unsaved(self, bases: Sequence[int]) -> list[Unsaved]:
        """What is not on disk yet; `bases` are the segments' base offsets. `saved` moves once it has been written."""
        numbers, work = self._numbers, list[Unsaved]()
        place = self.saved
        for base, following in zip(bases, (*bases[1:], _NO_END), strict=True):
            end = _place(numbers, following)
            if end > place:
                position = _ENTRY_BYTES * (place - _place(numbers, base))
                work.append(Unsaved(base, position, self._encoded(place, end)))
                place = end
        return work

    def encoded(self, offset: int, below: int) -> bytes:
        """The contents of the file of a segment from `offset` to `below`."""
        return self._encoded(_place(self._numbers, offset), _place(self._numbers, below))

    def _take(self, data: bytes, end: int) -> bool:
        """Add the entries of a file as far as they are valid, and their markers before `end`: what compaction has
        written there for a segment that it did not come to join is in that segment's own file. False if damaged."""
        for at in range(0, len(data), _ENTRY_BYTES):
            fields = data[at : at + _FIELDS.size]
            if data[at + _FIELDS.size : at + _ENTRY_BYTES] != _CRC.pack(crc32c(fields)):
                return False
            entry = _FIELDS.unpack(fields)
            if entry[_MARKER] >= end:
                break
            self._numbers.extend(entry)
        return True

    def _encoded(self, place: int, end: int) -> bytes:
        parts: list[bytes] = []
        for at in range(_WIDTH * place, _WIDTH * end, _WIDTH):
            fields = _FIELDS.pack(*self._numbers[at : at + _WIDTH])
            parts += (fields, _CRC.pack(crc32c(fields)))
        return b"".join(parts)


def save(disk: Disk, directory: Path, work: Sequence[Unsaved]) -> None:
    """Durable when this returns, but for the names of new files; blocks."""
    for base_offset, position, entries in work:
        file = disk.open(_path(directory, base_offset), create=True)
        try:
            file.truncate(position)
            file.append((entries,))
            file.sync()
        finally:
            file.close()


def replace_file(disk: Disk, directory: Path, base_offset: int, entries: bytes) -> None:
    """A segment's file as a whole, durably. Without an entry there is none: an empty one has lost its entries."""
    path = _path(directory, base_offset)
    if entries:
        disk.write_atomic(path, entries)
    elif disk.exists(path):
        disk.remove(path)
        disk.sync_dir(directory)


def cut_file(disk: Disk, directory: Path, base_offset: int, count: int) -> None:
    """Leave only the first `count` entries of a segment's file, durably."""
    path = _path(directory, base_offset)
    if disk.exists(path) and disk.file_size(path) > _ENTRY_BYTES * count:
        file = disk.open(path)
        try:
            file.truncate(_ENTRY_BYTES * count)
            file.sync()
        finally:
            file.close()


def _place(numbers: array[int], offset: int) -> int:
    """The first entry whose marker is not before `offset`."""
    return bisect_left(range(len(numbers) // _WIDTH), offset, key=lambda at: numbers[_WIDTH * at + _MARKER])


def _path(directory: Path, base_offset: int) -> Path:
    return directory / f"{base_offset:020d}{SUFFIX}"
