"""Parking: what is written for a produced batch that has delayed records, cancels or moves.

The batch becomes [note][mate]: the note has the records that wait, and the mate is the batch without them, emptied if
nothing is left, with its producer, sequences, transaction and offsets. So retries and replicas find what the producer
sent, and the offset that it is told is the id.

`park` decides before the write which records leave the batch, and changes nothing; `paired` makes the bytes, once the
mate is as it will be stored, since the note names its CRC. Called by appending.py with no await in between.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from headrace.log.delay_orders import Order, Verb, key_digest
from headrace.log.opening import Found, Keeps, OpenBatch
from headrace.log.schedule import Schedule
from headrace.wire.batches import NO_PRODUCER_ID, read_header, stamp_append_time, walk
from headrace.wire.errors import ErrorCode, InvalidRecords, KafkaError
from headrace.wire.notes import Note, NoteKind, encode_note


class Parked(NamedTuple):
    keeps: Keeps
    """Of each batch which records stay in it; None if all do."""
    note: Note
    """Without its mate."""


def park(batches: Sequence[OpenBatch], keeps: Keeps, schedule: Schedule, now_ms: int) -> Parked | None:
    """What is to be done with these batches; None if nothing. `keeps` says which records are to be dropped anyway.
    KafkaError if something in them cannot be done."""
    if not any(batch.orders for batch in batches):
        return None
    if len(batches) > 1:
        raise KafkaError(
            ErrorCode.invalid_record, "delayed records, cancels and moves need a request with one batch per partition"
        )
    (batch,), (keep,) = batches, keeps
    orders = [order for order in batch.orders if keep is None or keep[order.place]]
    if not orders:
        return None
    stays = [True] * batch.header.record_count if keep is None else list(keep)
    for order in orders:
        stays[order.place] = False
    return Parked([stays], _note(batch, orders, schedule, now_ms))


def _note(batch: OpenBatch, orders: Sequence[Order], schedule: Schedule, now_ms: int) -> Note:
    kept = [order for order in orders if order.verb is Verb.KEEP]
    changed: dict[int, int] = {}
    for order in orders:
        if order.verb is not Verb.KEEP:
            _change(batch, order, schedule, now_ms, changed)
    section, ends, end = memoryview(batch.section), array("I"), 0
    for order in kept:
        end += order.stop - order.start
        ends.append(end)
    return Note(
        NoteKind.PARK,
        producer_id=batch.header.producer_id if batch.header.is_transactional else NO_PRODUCER_ID,
        base_timestamp=batch.header.base_timestamp,
        ids=array("q", [order.place for order in kept]),
        dues=array("q", [order.due(now_ms) for order in kept]),
        keys=array("q", [key_digest(order.key) for order in kept]),
        ends=ends,
        changed=array("q", changed),
        next_dues=array("q", changed.values()),
        records=b"".join([section[order.start : order.stop] for order in kept]),
    )


def _change(batch: OpenBatch, order: Order, schedule: Schedule, now_ms: int, changed: dict[int, int]) -> None:
    """Note in `changed` what a cancel or a move does; refused if there is nothing to do."""
    place = [order.place]
    if batch.header.is_transactional:
        raise InvalidRecords(place, "a cancel or a move takes effect at once; send it outside of a transaction")
    if order.verb is Verb.CANCEL_KEY:
        found = [key for key in schedule.with_key(key_digest(order.key)) if changed.get(key) != -1]
        if not found:
            raise InvalidRecords(place, "no record with this key is pending; it may have been released or cancelled")
        changed |= dict.fromkeys(found, -1)
        return
    if schedule.due_of(order.target) is None or changed.get(order.target) == -1:
        raise InvalidRecords(place, f"record {order.target} is not pending; it may have been released or cancelled")
    changed[order.target] = -1 if order.verb is Verb.CANCEL else order.due(now_ms)


def paired(note: Note, mates: memoryview, found: Found, append_time_ms: int) -> tuple[memoryview, Found]:
    """The note before its mates, as they are to be written."""
    if append_time_ms >= 0:  # changes what the CRC covers
        for at, header in found:
            stamp_append_time(mates, at, header, append_time_ms)
    note.mates = len(found)
    note.mate_crc = read_header(mates, found[-1][0]).crc & 0xFFFFFFFF
    records = memoryview(encode_note(note) + mates)
    return records, list(walk(records))
