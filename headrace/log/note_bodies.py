"""Reading single records out of notes, without the rest of the note.

Records of one note are rarely due together: of a note with ten thousand records, ten may be due in each of a thousand
pieces. So a note's table is read once, and then each record from where it lies. The bytes were checked when the note
was written or replicated; they are not checked again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from headrace.log.reading import segment_at
from headrace.log.schedule import Due
from headrace.log.segment import Segment
from headrace.wire.batches import Buffer
from headrace.wire.notes import read_table, table_bytes
from headrace.wire.records import filter_records

_PREFIX_BYTES = 256
ROW_BYTES = 12


class NoteTable(Struct):
    """Which records a note has, and where."""

    segment: Segment
    records_at: int
    """In the segment's file."""
    ids: array[int]
    """Rising, as offsets."""
    ends: array[int]
    base_timestamp: int
    """What the times of the records count from."""

    @property
    def size(self) -> int:
        return ROW_BYTES * len(self.ids)

    def place(self, key: int) -> int:
        place = bisect_left(self.ids, key)
        if place == len(self.ids) or self.ids[place] != key:
            raise ValueError(f"the note in {self.segment.file.path} does not have record {key}")
        return place


def table_at(segments: Sequence[Segment], offset: int, *, wait: bool) -> NoteTable | None:
    """Of the note at this offset; None if there is none. Raises NotCached only without `wait`."""
    segment = segments[segment_at(segments, offset)]
    position = segment.locate(offset, wait=wait)
    for at, header in segment.headers(position, segment.size, wait=wait):
        if header.base_offset != offset or not header.is_note:
            return None
        prefix = segment.peek(at, min(_PREFIX_BYTES, header.size), wait=wait)
        size = table_bytes(prefix)
        if size is None or size > header.size:
            return None
        note = read_table(segment.peek(at, size, wait=wait))
        first = note.first_id(offset)
        ids = array("q", [first + key for key in note.ids]) if first else note.ids
        return NoteTable(segment, at + size, ids, note.ends, note.base_timestamp)
    return None


def missing(tables: Mapping[int, NoteTable], dues: Iterable[Due]) -> list[int]:
    """The offsets of notes whose tables are not there."""
    return [offset for offset in dict.fromkeys(due.note for due in dues) if offset not in tables]


def bodies(tables: Mapping[int, NoteTable], dues: Sequence[Due], *, wait: bool, from_0: bool) -> list[Buffer]:
    """The bytes of these records, as in a batch; those that lie one after the other are read together. `from_0`: their
    times are to count from 0, and not from what they counted from in their notes."""
    found: list[Buffer] = []
    at = 0
    while at < len(dues):
        table = tables[dues[at].note]
        first = last = table.place(dues[at].id)
        following = at + 1
        while (
            following < len(dues)
            and dues[following].note == dues[at].note
            and last + 1 < len(table.ids)
            and table.ids[last + 1] == dues[following].id
        ):
            last += 1
            following += 1
        start = table.ends[first - 1] if first else 0
        run = memoryview(table.segment.peek(table.records_at + start, table.ends[last] - start, wait=wait))
        begin = start
        for place in range(first, last + 1):
            part = run[begin - start : table.ends[place] - start]
            found.append(filter_records(part, [True], table.base_timestamp) if from_0 else part)
            begin = table.ends[place]
        at = following
    return found
