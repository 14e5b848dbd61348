"""The schedule of a log as derived state (derived.py): which notes count, and what a start needs to know of them.

A note counts once its mates have followed it directly and the last has the CRC that the note names. Until then it is
kept here as it is; any other batch, a cut of the log or a start before the mates came makes it a dead one.

File `NNN.schedule`, big-endian: everything that waits after all batches before offset NNN. Written at a checkpoint if
enough has changed to be worth it, and at a clean stop.

    magic "HRSC" (4), version 1 (2), zeros (2), columns (4); then of each column: producer id of its transaction or
    -1 (8), records (8), and of each: ids (8 each), due times or -1 (8 each), offsets of notes (8 each), digests of keys
    (8 each); CRC32C of everything before (4)

Validity: the CRC, and that the log has had everything before NNN at the last checkpoint. Without a valid file the state
is made from the log. Nothing here is trusted that the log does not have.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from functools import partial

from headrace.log.derived import MARKER, NOTES, PLAIN, DerivedState, LogOnDisk, Moment, Occasion, Store, StoredBatch
from headrace.log.note_pairs import OpenNote
from headrace.log.partition_folder import PartitionFolder
from headrace.log.pending import Pending
from headrace.log.schedule import Schedule
from headrace.log.segment import segment_path
from headrace.wire.batches import NO_PRODUCER_ID
from headrace.wire.checksum import crc32c
from headrace.wire.notes import Note, read_note

SUFFIX = ".schedule"
_HEAD = struct.Struct(">4sHHI")
_COLUMN = struct.Struct(">qq")
_MAGIC = b"HRSC"
_VERSION = 1


class Scheduled(DerivedState):
    __slots__ = ("_changed", "_open", "_stored", "hears", "noted", "schedule", "unwanted_before")

    def __init__(self) -> None:
        self.schedule = Schedule()
        self.noted = False
        """There has been a note in this log."""
        self.unwanted_before = 0
        """Retention would drop what lies before this offset, if no record waited there."""
        self.hears = NOTES | MARKER
        self._open: OpenNote | None = None
        self._changed = 0  # notes since the file was written
        self._stored: int | None = None  # up to where the file tells

    def needed_from(self, committed: int | None, *, deleting: bool = False) -> int:
        """The offset of the first note of which a replica may need something; NOWHERE if there is none."""
        needed = self.schedule.needed_from(committed or 0, deleting=deleting)
        return needed if self._open is None else min(needed, self._open.offset)

    # -- what the log tells -------------------------------------------------------------------------------------------

    def appended(self, batch: StoredBatch) -> None:
        header = batch.header
        if self._open is not None:
            counts = self._open.follows(header)
            if counts is None:
                return
            note, offset = self._open.note, self._open.offset
            self._await(None)
            if counts:
                self.schedule.apply(note, offset)
                return
        if header.is_note:
            self._begin(batch)
        elif header.is_control and self.schedule.held:
            marker = batch.marker()
            if marker is not None:
                self.schedule.ended(header.producer_id, header.base_offset, commit=marker.commit)
                self._changed += 1

    def _begin(self, batch: StoredBatch) -> None:
        note = read_note(*batch.stored())
        self.noted = True
        self._changed += 1
        if note is not None and note.mates:
            self._await(OpenNote(_without_records(note), batch.header))
        elif note is not None:
            self.schedule.apply(note, batch.header.base_offset)

    def _await(self, note: OpenNote | None) -> None:
        self._open = note
        self.hears = NOTES | MARKER | (PLAIN if note is not None else 0)

    # -- loading ------------------------------------------------------------------------------------------------------

    def load(self, log: LogOnDisk) -> int:
        self._forget()
        self.noted = log.checkpoint.noted
        if not self.noted:
            self._remove(log, log.named(SUFFIX))
            return log.end_offset if log.clean else log.safe_to
        first = log.segments[0].base_offset
        known_to = first
        for offset in log.named(SUFFIX):
            found = None
            if first <= offset <= log.safe_to:
                found = _decoded(log.folder.disk.read_bytes(segment_path(log.folder.directory, offset, SUFFIX)))
            if found is None:
                self._remove(log, [offset])
            else:
                self.schedule, known_to, self._stored = found, offset, offset
        return known_to

    def _remove(self, log: LogOnDisk, offsets: Sequence[int]) -> None:
        """Take these files away, durably: the log may reach the same offsets again, with other batches."""
        for offset in offsets:
            log.folder.remove(offset, (SUFFIX,))
        if offsets:
            log.folder.sync_names()

    def _forget(self) -> None:
        before = self.schedule
        self.schedule = Schedule()
        self.schedule.released, self.schedule.cancelled = before.released, before.cancelled
        self._await(None)
        self._stored, self._changed = None, 0

    def cut_back(self, log: LogOnDisk) -> None:
        if not self.noted:
            return
        counts = self.schedule.released, self.schedule.cancelled
        known_to = self.load(log)
        self.noted = True
        for batch in log.batches(known_to if log.checkpoint.noted else log.segments[0].base_offset):
            self.appended(batch)
        self.schedule.released, self.schedule.cancelled = counts

    def restarted(self, log: LogOnDisk) -> None:
        self._forget()
        self.noted = False
        for offset in log.named(SUFFIX):
            log.folder.remove(offset, (SUFFIX,))

    # -- storing ------------------------------------------------------------------------------------------------------

    def snapshot(self, moment: Moment) -> Store | None:
        moment.fields["noted"] = self.noted
        if moment.occasion is not Occasion.CHECKPOINT or not self.noted or not self._worth_it(moment):
            return None
        offset = moment.end_offset if self._open is None else self._open.offset
        before, self._stored, self._changed = self._stored, offset, 0
        return Store(partial(_write, moment.folder, offset, before, _encoded(self.schedule)), durable=False)

    def _worth_it(self, moment: Moment) -> bool:
        """Writing everything must not cost more than what has come since, unless the log stops."""
        if self._stored is None or moment.stops:
            return self._stored != moment.end_offset
        return self._changed > len(self.schedule.pending) // 8


def _without_records(note: Note) -> Note:
    note.records = b""
    return note


def _write(folder: PartitionFolder, offset: int, before: int | None, data: bytes) -> None:
    path = segment_path(folder.directory, offset, SUFFIX)
    try:
        file = folder.disk.open(path, create=True)
        try:
            file.truncate(0)
            file.append((data,))
            file.sync()
        finally:
            file.close()
    except (OSError, MemoryError):
        folder.disk.remove(path)
        return
    if before is not None and before != offset:
        folder.remove(before, (SUFFIX,))


def _encoded(schedule: Schedule) -> bytes:
    columns = [(NO_PRODUCER_ID, schedule.pending), *schedule.held.items()]
    parts = [_HEAD.pack(_MAGIC, _VERSION, 0, len(columns))]
    for producer_id, column in columns:
        values = column.columns()
        parts.append(_COLUMN.pack(producer_id, len(values[0])))
        parts.extend(map(_swapped, values))
    body = b"".join(parts)
    return body + crc32c(body).to_bytes(4, "big")


def _decoded(data: bytes) -> Schedule | None:
    if len(data) < _HEAD.size + 4 or crc32c(data[:-4]) != int.from_bytes(data[-4:], "big"):
        return None
    magic, version, _, count = _HEAD.unpack_from(data)
    if magic != _MAGIC or version != _VERSION:
        return None
    schedule = Schedule()
    at = _HEAD.size
    for _ in range(count):
        producer_id, rows = _COLUMN.unpack_from(data, at)
        at += _COLUMN.size
        waiting = Pending()
        waiting.adopt(rows, partial(_read, memoryview(data)[at : at + 32 * rows], rows))
        at += 32 * rows
        schedule.adopt(producer_id, waiting)
    return schedule


def _read(data: memoryview, rows: int, column: int, start: int, stop: int) -> array[int]:
    """A part of a column."""
    values = array("q")
    values.frombytes(data[8 * (column * rows + start) : 8 * (column * rows + stop)])
    if sys.byteorder == "little":
        values.byteswap()
    return values


def _swapped(values: array[int]) -> bytes:
    copy = array("q", values)
    if sys.byteorder == "little":
        copy.byteswap()
    return copy.tobytes()
