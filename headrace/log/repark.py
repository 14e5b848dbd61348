"""Parking records again: the notes with which a leader writes what waits once more, before retention drops the first.

Pure. The ids, times and digests stay; a note has records of one transaction only, or of none.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from headrace.log.pending import Row
from headrace.wire.batches import Buffer
from headrace.wire.notes import Note, NoteKind, encode_note

MOST_BYTES = 512 << 10


def reparked(producer_id: int, waiting: Iterable[tuple[Row, Buffer]]) -> memoryview:
    """Notes with these records: what is known of each, and its bytes, with a time that counts from 0."""
    out = bytearray()
    parts: list[Buffer] = []
    note, end = _begun(producer_id), 0
    for (key, due_ms, _, digest), part in waiting:
        if parts and end + len(part) > MOST_BYTES:
            note.records = b"".join(parts)
            out += encode_note(note)
            note, parts, end = _begun(producer_id), [], 0
        end += len(part)
        parts.append(part)
        note.ids.append(key)
        note.dues.append(due_ms)
        note.keys.append(digest)
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
