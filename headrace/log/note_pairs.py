"""Whether a note counts: only if its mates follow it directly, and the last has the CRC that the note names.

Used by the derived states that hear of notes: scheduled.py, and dedup.py for the ids of parked records. Until the last
mate is there a state holds the note, and must be told of it again if it forgets.
"""

from __future__ import annotations

from headrace.wire.batches import BatchHeader
from headrace.wire.notes import Note


class OpenNote:
    """A note that waits for its mates."""

    __slots__ = ("_left", "_next_offset", "note", "offset")

    def __init__(self, note: Note, header: BatchHeader) -> None:
        self.note = note
        self.offset = header.base_offset
        self._left = note.mates
        self._next_offset = header.next_offset

    def follows(self, header: BatchHeader) -> bool | None:
        """Whether the note counts, now that this batch is there; None as long as that is open."""
        if header.base_offset != self._next_offset or header.is_note:
            return False
        self._left -= 1
        self._next_offset = header.next_offset
        if self._left:
            return None
        return header.crc & 0xFFFFFFFF == self.note.mate_crc
