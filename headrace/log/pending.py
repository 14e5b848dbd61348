"""The records of a log that wait for their time, as columns: id, due time, where the note with the record lies, digest
of the key. 32 bytes a record.

Ids rise, as records are parked in the order of offsets. One that is gone leaves a hole, and the columns are written
anew when half of them is holes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import TypeAlias

Column: TypeAlias = "array[int]"

GONE = -1
NOWHERE = 2**63 - 1
_FEW = 1024


class Pending:
    __slots__ = ("dues", "ids", "keys", "live", "notes")

    def __init__(self) -> None:
        self.ids: Column = array("q")
        self.dues: Column = array("q")  # GONE in a hole
        self.notes: Column = array("q")  # NOWHERE in a hole
        self.keys: Column = array("q")
        self.live = 0

    def __len__(self) -> int:
        return self.live

    def add(self, ids: Sequence[int], dues: Sequence[int], note: int, keys: Sequence[int]) -> None:
        """Records whose ids rise, with their bodies in the note at offset `note`. Those that are known are replaced."""
        if len(ids):
            self._join(array("q", ids), array("q", dues), array("q", [note]) * len(ids), array("q", keys))

    def take(self, other: Pending) -> None:
        """All that another one has."""
        other.close_up()
        if other.ids:
            self._join(other.ids, other.dues, other.notes, other.keys)

    def _join(self, *more: Column) -> None:
        place = bisect_left(self.ids, more[0][0])
        columns = (self.ids, self.dues, self.notes, self.keys)
        if place < len(self.ids):  # of a transaction that took long, or parked anew
            self.live -= sum(due != GONE for due in self.dues[place:])
            rows = {row[0]: row for row in zip(*(column[place:] for column in columns), strict=True) if row[1] != GONE}
            rows |= {row[0]: row for row in zip(*more, strict=True)}
            for column in columns:
                del column[place:]
            more = tuple(array("q", values) for values in zip(*(rows[key] for key in sorted(rows)), strict=True))
        for column, added in zip(columns, more, strict=True):
            column.extend(added)
        self.live += len(more[0])

    def find(self, key: int) -> int | None:
        """The place of this id; None if it does not wait."""
        place = bisect_left(self.ids, key)
        if place == len(self.ids) or self.ids[place] != key or self.dues[place] == GONE:
            return None
        return place

    def remove(self, place: int) -> None:
        self.dues[place] = GONE
        self.notes[place] = NOWHERE
        self.live -= 1
        if (len(self.ids) > _FEW and self.live * 2 < len(self.ids)) or not self.live:
            self.close_up()

    def close_up(self) -> None:
        """Write the columns without holes."""
        if self.live == len(self.ids):
            return
        kept = [place for place, due in enumerate(self.dues) if due != GONE]
        for column in (self.ids, self.dues, self.notes, self.keys):
            column[:] = array("q", [column[place] for place in kept])

    def with_key(self, key: int) -> list[int]:
        """The places of all records whose keys have this digest."""
        found: list[int] = []
        place = -1
        while True:
            try:
                place = self.keys.index(key, place + 1)
            except ValueError:
                return found
            if self.dues[place] != GONE:
                found.append(place)

    def lowest_note(self) -> int:
        """Where the first note lies that has one of the records; NOWHERE without any."""
        return min(self.notes, default=NOWHERE)

    def in_notes_before(self, offset: int, from_id: int, limit: int) -> tuple[list[int], int | None]:
        """Ids of records whose notes lie before this offset, among the first `limit` from this id on; and from which id
        to go on, None at the end."""
        first = bisect_left(self.ids, from_id)
        end = first + limit
        found = [key for key, note in zip(self.ids[first:end], self.notes[first:end], strict=True) if note < offset]
        return found, self.ids[end] if end < len(self.ids) else None

    def page(self, from_id: int, limit: int) -> list[tuple[int, int, int]]:
        """(id, due, note) of the first records from this id on."""
        place = bisect_left(self.ids, from_id)
        found: list[tuple[int, int, int]] = []
        while place < len(self.ids) and len(found) < limit:
            if self.dues[place] != GONE:
                found.append((self.ids[place], self.dues[place], self.notes[place]))
            place += 1
        return found
