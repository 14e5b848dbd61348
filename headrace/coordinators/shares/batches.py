"""State batches: the records of a share partition, in runs of one state and one delivery count.

The stored runs are in order and never overlap. A write names the runs that have changed; they replace what was stored
of the same offsets, and whatever lies before the start offset is forgotten. Pure functions, called by the share shard.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from headrace.model.share_state import StateBatch

Batches = list[StateBatch]


def put(batches: Batches, changed: Iterable[StateBatch], start_offset: int) -> None:
    """Write `changed` over `batches`, in their order, and forget everything before the start offset."""
    for batch in changed:
        if batch.last_offset >= max(start_offset, batch.first_offset):
            _put_one(batches, batch)
    cut(batches, start_offset)


def cut(batches: Batches, start_offset: int) -> None:
    gone = bisect_left(batches, start_offset, key=_last)
    del batches[:gone]
    if batches and batches[0].first_offset < start_offset:
        batches[0] = _part(batches[0], start_offset, batches[0].last_offset)


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
