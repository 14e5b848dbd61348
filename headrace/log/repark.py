"""Parking records again: the notes with which a leader writes what waits once more, before retention drops the first.

Pure. The ids, times and digests stay; a note has records of one transaction only, or of none.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

from headrace.log.pending import Pending
from headrace.log.release import body
from headrace.wire.batches import Buffer
from headrace.wire.notes import Note, NoteKind, encode_note
from headrace.wire.records import filter_records

MOST_BYTES = 512 << 10


def reparked(waiting: Pending, producer_id: int, ids: Iterable[int], notes: Mapping[int, Note]) -> memoryview:
    """Notes with these records, as far as they still wait in the `notes` by offset."""
    out = bytearray()
    parts: list[Buffer] = []
    note, end = _begun(producer_id), 0
    for key in ids:
        row = waiting.row(key)
        if row is None or (found := notes.get(row[2])) is None:
            continue
        part = body(found, row[2], key)
        if part is None:
            raise ValueError(f"the note at offset {row[2]} does not have record {key}")
        if parts and end + len(part) > MOST_BYTES:
            note.records = b"".join(parts)
            out += encode_note(note)
            note, parts, end = _begun(producer_id), [], 0
        if not parts:
            note.base_timestamp = found.base_timestamp
        elif found.base_timestamp != note.base_timestamp:
            part = filter_records(part, [True], found.base_timestamp - note.base_timestamp)
        end += len(part)
        parts.append(part)
        note.ids.append(key)
        note.dues.append(row[1])
        note.keys.append(row[3])
        note.ends.append(end)
    if parts:
        note.records = b"".join(parts)
        out += encode_note(note)
    return memoryview(out)


def cancelled(ids: Iterable[int]) -> memoryview:
    """A note that these are gone."""
    gone = array("q", ids)
    return memoryview(encode_note(Note(NoteKind.CANCEL, changed=gone, next_dues=array("q", [-1]) * len(gone))))


def _begun(producer_id: int) -> Note:
    return Note(NoteKind.REPARK, producer_id=producer_id)
