"""What waits for its time in a log, as a batch for the readers of a view of it.

Called by views (api/view_content.py) in a thread of its own, which may wait for the disk, with rows that were taken on
the event loop (PartitionLog.pending_rows). A record has its id as offset; key, value, time and headers are those that
its producer sent, and `headrace.scheduled.for` says when it is due.

Invariant: no row is left out. Where the note of the first row is gone, because the record was released, parked again
or truncated since its row was taken, that is an OSError, and the reader asks again; where a later one is gone, the
batch ends before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from msgspec import Struct

from headrace.log.partition_log import PartitionLog
from headrace.log.pending import Waiting
from headrace.log.reading import segment_at
from headrace.log.release import FOR
from headrace.log.segment import Segment
from headrace.wire.batches import HEADER_BYTES, MAGIC, Buffer, crc_ok, read_header
from headrace.wire.errors import Malformed
from headrace.wire.notes import Note, read_note
from headrace.wire.record import Record
from headrace.wire.records import decode_loose, encode_batch

_READ_BYTES = 4 << 20  # of notes, that one call reads, about
_READ_NOTES = 1000
_WINDOW_BYTES = 256 << 10
_KEPT_NOTES = 8
_ROW_BYTES = 40  # that the due time and a longer offset add to a record, at most
_LARGEST_DELTA = 0x7FFFFFFF


class Made(Struct):
    """One batch, made of the first rows."""

    records: bytearray
    count: int = 0  # rows that are in it
    read_bytes: int = 0


def pending_batch(log: PartitionLog, rows: Sequence[Waiting], max_bytes: int) -> Made:
    """The first of these rows: at most `max_bytes`, but one record in any case; at least one row is given."""
    reader, found = NoteReader(log), Made(bytearray())
    taken: list[Waiting] = []
    bodies: list[Buffer] = []
    times: list[int] = []
    size = 0
    for row in rows:
        if (taken and row.id - taken[0].id > _LARGEST_DELTA) or reader.is_done:
            break
        note = reader.note(row.note)
        record = None if note is None else _body(note, row.note, row.id)
        if note is None or record is None:
            if taken:
                break
            raise OSError(f"{log.topic_partition} has no note with record {row.id} at offset {row.note}")
        size += len(record) + _ROW_BYTES
        if taken and size > max_bytes:
            break
        taken.append(row)
        bodies.append(record)
        times.append(note.base_timestamp)
    found.count, found.read_bytes = len(taken), reader.read_bytes
    epoch = log.epochs.epoch_of(max(taken[0].id, log.start_offset))
    try:
        records = _records(taken, bodies, times)
        found.records = encode_batch(records, base_offset=taken[0].id, leader_epoch=epoch)
    except (Malformed, ValueError) as error:
        raise OSError(f"{log.topic_partition}: a record among {taken[0].id} to {taken[-1].id}: {error}") from error
    return found


def _records(rows: Sequence[Waiting], bodies: Sequence[Buffer], times: Sequence[int]) -> list[Record]:
    """The records as readers see them; `times` is what their times count from."""
    opened = decode_loose(b"".join(bodies), len(bodies))
    return [
        Record(
            row.id,
            base + record.timestamp,
            record.key,
            record.value,
            (*(header for header in record.headers if header[0] != FOR), (FOR, b"%d" % row.due_ms)),
        )
        for record, row, base in zip(opened, rows, times, strict=True)
    ]


def _body(note: Note, offset: int, key: int) -> Buffer | None:
    """The bytes of the record with this id, of the note at this offset; None if the note does not have it."""
    wanted = key - note.first_id(offset)
    place = bisect_left(note.ids, wanted)
    if place == len(note.ids) or note.ids[place] != wanted:
        return None
    return note.record(place)


class NoteReader:
    """Opens notes. Those that follow each other in a segment are found in one window of its file."""

    def __init__(self, log: PartitionLog) -> None:
        self.read_bytes = self.read_notes = 0
        self._segments: Sequence[Segment] = log.segments
        self._notes: dict[int, Note | None] = {}
        self._segment: Segment | None = None
        self._window = b""
        self._window_at = 0  # where the window lies in the segment
        self._at = 0  # the batch in the window at which the search goes on

    @property
    def is_done(self) -> bool:
        """It has read so much that others should have their turn."""
        return self.read_bytes > _READ_BYTES or self.read_notes >= _READ_NOTES

    def note(self, offset: int) -> Note | None:
        """The note at this offset; None if there is none."""
        if offset not in self._notes:
            if len(self._notes) == _KEPT_NOTES:
                del self._notes[next(iter(self._notes))]
            self.read_notes += 1
            self._notes[offset] = self._ahead(offset) or self._located(offset)
        return self._notes[offset]

    def _ahead(self, offset: int) -> Note | None:
        """The note, if it lies further on in the window."""
        window, at = self._window, self._at
        while at + HEADER_BYTES <= len(window):
            header = read_header(window, at)
            if header.magic != MAGIC or header.base_offset > offset or at + header.size > len(window):
                return None
            if header.base_offset == offset:
                if not crc_ok(window, at, header):
                    assert self._segment is not None
                    raise self._segment.damage(self._window_at + at)
                self._at = at + header.size
                self.read_bytes += header.size
                return read_note(window, at)
            at += header.size
        return None

    def _located(self, offset: int) -> Note | None:
        segment = self._segments[segment_at(self._segments, offset)]
        position = segment.locate(offset, wait=True)
        left = segment.size - position
        if left < HEADER_BYTES:
            return None
        window = segment.peek(position, min(_WINDOW_BYTES, left), wait=True)
        size = read_header(window).size
        if len(window) < size <= left:
            window = segment.peek(position, size, wait=True)
        self._segment, self._window, self._window_at, self._at = segment, window, position, 0
        return self._ahead(offset)
