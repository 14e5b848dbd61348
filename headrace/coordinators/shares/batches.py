"""State batches: the records of a share partition, in runs of one state and one delivery count.

The stored runs are in order and never overlap. A write names the runs that have changed; they replace what was stored
of the same offsets, and whatever lies before the start offset is forgotten. But what is done with stays so: a leader
never takes that back, so a write that says otherwise was overtaken by a later one, on another connection. Pure
functions, called by the share shard.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from headrace.model.share_state import AVAILABLE, StateBatch

Batches = list[StateBatch]


def put(batches: Batches, changed: Iterable[StateBatch], start_offset: int) -> None:
    """Write `changed` over `batches`, in their order, and forget everything before the start offset."""
    for batch in changed:
        if batch.last_offset >= max(start_offset, batch.first_offset):
            for part in [batch] if batch.state != AVAILABLE else _undone(batches, batch):
                _put_one(batches, part)
    cut(batches, start_offset)


def cut(batches: Batches, start_offset: int) -> None:
    gone = bisect_left(batches, start_offset, key=_last)
    del batches[:gone]
    if batches and batches[0].first_offset < start_offset:
        batches[0] = _part(batches[0], start_offset, batches[0].last_offset)


def _undone(batches: Batches, batch: StateBatch) -> Batches:
    """The parts of the batch that are not stored as done with."""
    first, parts = batch.first_offset, []
    begin = bisect_left(batches, first, key=_last)
    for old in batches[begin : bisect_right(batches, batch.last_offset, key=_first)]:
        if old.state != AVAILABLE:
            if old.first_offset > first:
                parts.append(_part(batch, first, old.first_offset - 1))
            first = old.last_offset + 1
    if first <= batch.last_offset:
        parts.append(_part(batch, first, batch.last_offset))
    return parts


def _put_one(batches: Batches, batch: StateBatch) -> None:
    first, last = batch.first_offset, batch.last_offset
    begin = bisect_left(batches, first - 1, key=_last)  # neighbours too: they may be of the same state
    end = bisect_right(batches, last + 1, key=_first)
    pieces: Batches = []
    for old in batches[begin:end]:
        if _alike(old, batch):
            first, last = min(first, old.first_offset), max(last, old.last_offset)
            continue
        if old.first_offset < batch.first_offset:
            pieces.append(_part(old, old.first_offset, batch.first_offset - 1))
        if old.last_offset > batch.last_offset:
            pieces.append(_part(old, batch.last_offset + 1, old.last_offset))
    before = [piece for piece in pieces if piece.last_offset < first]
    after = [piece for piece in pieces if piece.first_offset > last]
    batches[begin:end] = [*before, _part(batch, first, last), *after]


def _alike(one: StateBatch, other: StateBatch) -> bool:
    return one.state == other.state and one.delivery_count == other.delivery_count


def _part(batch: StateBatch, first: int, last: int) -> StateBatch:
    return StateBatch(first, last, batch.state, batch.delivery_count)


def _first(batch: StateBatch) -> int:
    return batch.first_offset


def _last(batch: StateBatch) -> int:
    return batch.last_offset
