"""The records of a log that wait for their time, as columns: id, due time, where the note with the record lies, digest
of the key. 32 bytes a record.

Ids rise, as records are parked in the order of offsets; the columns are cut into blocks of some ten thousand rows, so
that whatever has to be moved is small. A record that is gone leaves a hole, and a block is written anew when half of it
is holes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

Column: TypeAlias = "array[int]"
Row = tuple[int, int, int, int]

GONE = -1
NOWHERE = 2**63 - 1
_BLOCK_ROWS = 16_384


class Waiting(NamedTuple):
    """A record that waits."""

    id: int
    due_ms: int
    note: int
    """The offset of the note that has it."""


class Block:
    __slots__ = ("dues", "ids", "keys", "live", "notes")

    def __init__(self) -> None:
        self.ids: Column = array("q")
        self.dues: Column = array("q")  # GONE in a hole
        self.notes: Column = array("q")  # NOWHERE in a hole
        self.keys: Column = array("q")
        self.live = 0

    def extend(self, columns: Sequence[Column]) -> None:
        for column, added in zip(self.columns, columns, strict=True):
            column.extend(added)
        self.live += len(columns[0])

    @property
    def columns(self) -> tuple[Column, Column, Column, Column]:
        return self.ids, self.dues, self.notes, self.keys

    def rows(self) -> Iterator[Row]:
        return (row for row in zip(*self.columns, strict=True) if row[1] != GONE)

    def close_up(self) -> None:
        kept = list(self.rows())
        for column, values in zip(self.columns, zip(*kept, strict=True), strict=True):
            column[:] = array("q", values)


class Pending:
    __slots__ = ("_blocks", "_firsts", "live")

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._firsts: Column = array("q")  # the first id of each block
        self.live = 0

    def __len__(self) -> int:
        return self.live

    # -- changing -----------------------------------------------------------------------------------------------------

    def add(self, ids: Sequence[int], dues: Sequence[int], note: int, keys: Sequence[int]) -> None:
        """Records whose ids rise, with their bodies in the note at offset `note`. Those that are known are replaced."""
        self._join((array("q", ids), array("q", dues), array("q", [note]) * len(ids), array("q", keys)))

    def take(self, other: Pending) -> None:
        """All that another one has."""
        for block in other._blocks:
            rows = list(block.rows())
            if rows:
                self._join(tuple(array("q", values) for values in zip(*rows, strict=True)))

    def adopt(self, rows: int, read: Callable[[int, int, int], Column]) -> None:
        """So many rows, as `columns` has given them; `read` has those of one column from one place to another. Nothing
        is known yet."""
        for at in range(0, rows, _BLOCK_ROWS):
            block = Block()
            block.extend([read(place, at, min(at + _BLOCK_ROWS, rows)) for place in range(4)])
            block.live -= block.dues.count(GONE)
            if block.live:
                self._blocks.append(block)
                self._firsts.append(block.ids[0])
                self.live += block.live

    def _join(self, more: Sequence[Column]) -> None:
        if not more[0]:
            return
        if self._blocks and self._blocks[-1].ids[-1] >= more[0][0]:
            more = self._split_off(more)
        at, count = 0, len(more[0])
        while at < count:
            if not self._blocks or len(self._blocks[-1].ids) >= _BLOCK_ROWS:
                self._blocks.append(Block())
                self._firsts.append(more[0][at])
            block = self._blocks[-1]
            end = at + _BLOCK_ROWS - len(block.ids)
            block.extend([column[at:end] for column in more])
            at = end
        self.live += count

    def _split_off(self, more: Sequence[Column]) -> Sequence[Column]:
        """Take away the blocks that reach into these rows; their rows, together with these, which win. Of a transaction
        that took long, or parked anew."""
        first = max(0, bisect_right(self._firsts, more[0][0]) - 1)
        rows: dict[int, Row] = {row[0]: row for block in self._blocks[first:] for row in block.rows()}
        self.live -= len(rows)
        del self._blocks[first:], self._firsts[first:]
        rows |= {row[0]: row for row in zip(more[0], more[1], more[2], more[3], strict=True)}
        return tuple(array("q", values) for values in zip(*(rows[key] for key in sorted(rows)), strict=True))

    def remove(self, key: int) -> None:
        """This one waits no longer."""
        found = self._find(key)
        if found is None:
            return
        block, place = found
        block.dues[place] = GONE
        block.notes[place] = NOWHERE
        block.live -= 1
        self.live -= 1
        if not block.live:
            at = bisect_right(self._firsts, key) - 1
            del self._blocks[at], self._firsts[at]
        elif block.live * 2 < len(block.ids):
            block.close_up()

    def move(self, key: int, due_ms: int) -> None:
        """This one is due at another time."""
        found = self._find(key)
        if found is not None:
            found[0].dues[found[1]] = due_ms

    # -- asking -------------------------------------------------------------------------------------------------------

    def _find(self, key: int) -> tuple[Block, int] | None:
        at = bisect_right(self._firsts, key) - 1
        if at < 0:
            return None
        block = self._blocks[at]
        place = bisect_left(block.ids, key)
        if place == len(block.ids) or block.ids[place] != key or block.dues[place] == GONE:
            return None
        return block, place

    def due_of(self, key: int) -> int | None:
        """When this one is due; None if it does not wait."""
        found = self._find(key)
        return None if found is None else found[0].dues[found[1]]

    def row(self, key: int) -> Row | None:
        """(id, due time, note, digest of the key)."""
        found = self._find(key)
        if found is None:
            return None
        block, place = found
        return key, block.dues[place], block.notes[place], block.keys[place]

    def with_key(self, digest: int) -> list[int]:
        """The ids of all records whose keys have this digest."""
        found: list[int] = []
        for block in self._blocks:
            if digest in block.keys:
                found += [row[0] for row in block.rows() if row[3] == digest]
        return found

    def lowest_note(self) -> int:
        """Where the first note lies that has one of the records; NOWHERE without any."""
        return min((min(block.notes) for block in self._blocks), default=NOWHERE)

    def in_notes_before(self, offset: int, from_id: int, limit: int) -> tuple[list[int], int | None]:
        """Ids of records whose notes lie before this offset, among the first `limit` or so from this id on; and from
        which id to go on, None at the end."""
        found: list[int] = []
        looked = 0
        first = max(0, bisect_right(self._firsts, from_id) - 1)
        for at in range(first, len(self._blocks)):
            if looked >= limit:
                return found, self._firsts[at]
            block = self._blocks[at]
            found += [row[0] for row in block.rows() if row[2] < offset and row[0] >= from_id]
            looked += len(block.ids)
        return found, None

    def page(self, from_id: int, limit: int) -> list[Waiting]:
        """The first records from this id on."""
        found: list[Waiting] = []
        for at in range(max(0, bisect_right(self._firsts, from_id) - 1), len(self._blocks)):
            block = self._blocks[at]
            place = bisect_left(block.ids, from_id)
            for key, due_ms, note in zip(block.ids[place:], block.dues[place:], block.notes[place:], strict=True):
                if len(found) == limit:
                    return found
                if due_ms != GONE:
                    found.append(Waiting(key, due_ms, note))
        return found

    def ids(self) -> Column:
        """All ids, those of holes included."""
        ids: Column = array("q")
        for block in self._blocks:
            ids.extend(block.ids)
        return ids

    def columns(self) -> tuple[Column, Column, Column, Column]:
        """All rows, holes included."""
        whole = Block()
        for block in self._blocks:
            whole.extend(block.columns)
        return whole.columns
