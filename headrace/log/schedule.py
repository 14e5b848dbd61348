"""What of a log waits for its time: the state that follows from its notes (wire/notes.py) and transaction markers.

A record is HELD while its transaction is open, PENDING from the commit on, and gone once it was RELEASED or CANCELLED,
or its transaction aborted. Only what lies in the log changes anything here: scheduled.py tells it, on a leader as on a
follower and when a log is opened. So all replicas come to the same state.

Invariant: `needed_from` is not behind any note whose records may still be needed, by this replica or by one that leads
after it: what a note has changed counts for that only once the note is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.log.due_wheel import NEVER, DueWheel
from headrace.log.pending import NOWHERE, Pending
from headrace.wire.batches import NO_PRODUCER_ID
from headrace.wire.notes import Note, NoteKind

_MANY_LEAVING = 10_000
_WHEEL_SLACK = 100_000  # ids in buckets that mean nothing any more


class Due(NamedTuple):
    """A record whose time has come."""

    due_ms: int
    id: int
    note: int
    """The offset of the note that has it."""


class Schedule:
    def __init__(self) -> None:
        self.pending = Pending()
        self.held: dict[int, Pending] = {}
        """By the producer id of the transaction."""
        self.released = 0
        self.cancelled = 0
        self._wheel = DueWheel(self.due_of)
        self._leaving: list[tuple[int, int]] = []
        """(offset of a note, the lowest note whose records it has released or cancelled)."""
        self._moved: list[tuple[int, int]] = []
        """The same of records that it has written again."""

    def __bool__(self) -> bool:
        return bool(self.pending or self.held)

    # -- asking -------------------------------------------------------------------------------------------------------

    def due_of(self, key: int) -> int | None:
        """When this one is due; None if it is not pending."""
        return self.pending.due_of(key)

    def note_of(self, key: int) -> int | None:
        row = self.pending.row(key)
        return None if row is None else row[2]

    def with_key(self, digest: int) -> list[int]:
        """The ids of all pending records whose keys have this digest."""
        return self.pending.with_key(digest)

    def next_ms(self) -> int | None:
        """When something may be due; None if nothing is pending."""
        if not self.pending:
            return None
        due_ms = self._wheel.next_ms()
        return None if due_ms == NEVER else due_ms

    def due(self, now_ms: int, limit: int, below: int) -> tuple[list[Due], bool]:
        """The first records that are due, in the order of (due time, id), of those whose ids are below `below`; and
        whether another call may find more now."""
        found, more = self._wheel.due(now_ms, limit, below)
        dues = [Due(due_ms, key, note) for due_ms, key in found if (note := self.note_of(key)) is not None]
        return dues, more

    def needed_from(self, committed: int, *, deleting: bool = False) -> int:
        """The offset of the first note that is needed; NOWHERE if none is. When records are deleted on request, those
        that were released or cancelled are not needed even if that is not committed."""
        self._leaving = [leaving for leaving in self._leaving if leaving[0] >= committed]
        self._moved = [moved for moved in self._moved if moved[0] >= committed]
        firsts = [note for _, note in self._moved]
        if not deleting:
            firsts += [note for _, note in self._leaving]
        return min([column.lowest_note() for column in (self.pending, *self.held.values())] + firsts)

    def waiting(self, producer_id: int) -> Pending:
        """What is pending; with a producer id what its transaction holds."""
        return self.pending if producer_id == NO_PRODUCER_ID else self.held.get(producer_id, Pending())

    def ids_below(self, offset: int) -> list[int]:
        """All ids below this offset, held ones too, rising."""
        columns = [self.pending, *self.held.values()]
        return sorted(key for column in columns for key, _, _ in column.page(0, len(column)) if key < offset)

    # -- what the log tells -------------------------------------------------------------------------------------------

    def apply(self, note: Note, offset: int) -> None:
        """A note that counts, at this offset."""
        if note.changed:
            self._change(note, offset)
        if note.ids:
            self._keep(note, offset)
        if len(self._leaving) > _MANY_LEAVING:
            self._leaving = [(self._leaving[-1][0], min(lowest for _, lowest in self._leaving))]

    def _keep(self, note: Note, offset: int) -> None:
        first = note.first_id(offset)
        ids: Sequence[int] = [first + key for key in note.ids] if first else note.ids
        into, producer_id = self.pending, note.producer_id
        if producer_id != NO_PRODUCER_ID:
            into = self.held.setdefault(producer_id, Pending())
        if note.kind is NoteKind.REPARK:
            rows = [row for key in ids if (row := into.row(key)) is not None]
            if rows:
                self._moved.append((offset, min(row[2] for row in rows)))
            known = {row[0] for row in rows}
        else:
            known = set()
        into.add(ids, note.dues, offset, note.keys)
        if into is self.pending:
            for key, due_ms in zip(ids, note.dues, strict=True):
                if key not in known:
                    self._wheel.add(key, due_ms)

    def _change(self, note: Note, offset: int) -> None:
        lowest, pending = NOWHERE, self.pending
        for key, due_ms in zip(note.changed, note.next_dues, strict=True):
            row = pending.row(key)
            if row is None:
                if note.kind is NoteKind.CANCEL:
                    lowest = min(lowest, self._drop_held(key))
                continue
            if note.kind is NoteKind.RELEASE:
                self.released += 1
            if due_ms >= 0:
                pending.move(key, due_ms)
                self._wheel.add(key, due_ms)
                continue
            if note.kind is not NoteKind.RELEASE:
                self.cancelled += 1
            lowest = min(lowest, row[2])
            pending.remove(key)
        self._leaves(offset, -1 if lowest == NOWHERE else lowest)
        if self._wheel.size > 2 * len(pending) + _WHEEL_SLACK:
            self._begin_wheel()

    def _drop_held(self, key: int) -> int:
        for producer_id, held in self.held.items():
            row = held.row(key)
            if row is not None:
                self.cancelled += 1
                held.remove(key)
                if not held:
                    del self.held[producer_id]
                return row[2]
        return NOWHERE

    def _leaves(self, offset: int, lowest: int) -> None:
        if lowest >= 0:
            self._leaving.append((offset, lowest))

    def ended(self, producer_id: int, offset: int, *, commit: bool) -> None:
        """The marker at this offset has ended a transaction."""
        held = self.held.pop(producer_id, None)
        if held is None:
            return
        if not commit:
            self._leaves(offset, held.lowest_note())
            return
        for key, due_ms, _ in held.page(0, len(held)):
            self._wheel.add(key, due_ms)
        self.pending.take(held)

    def adopt(self, producer_id: int, waiting: Pending) -> None:
        """What a file has of the pending records (-1) or of a transaction."""
        if producer_id != NO_PRODUCER_ID:
            self.held[producer_id] = waiting
            return
        self.pending = waiting
        self._begin_wheel()

    def _begin_wheel(self) -> None:
        self._wheel = DueWheel(self.due_of)
        self._wheel.add_all(self.pending.ids())
