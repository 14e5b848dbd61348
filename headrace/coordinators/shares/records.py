"""The records of `__share_group_state`, in Kafka's own format, so that Kafka's tools read them.

    key 0    a snapshot      group: string, topic id: uuid, partition: int32
    key 1    an update       the same fields
    value 0 of a snapshot    snapshot_epoch: int32, state_epoch: int32, leader_epoch: int32, start_offset: int64,
                             created_ms: int64, written_ms: int64, batches, tag 0: delivery_complete_count: int32
    value 0 of an update     snapshot_epoch: int32, leader_epoch: int32, start_offset: int64 (-1: as before), batches,
                             tag 0: delivery_complete_count: int32
    batches                  [first_offset: int64, last_offset: int64, state: int8, delivery_count: int16]

Key and value start with a version (int16), which in a key is its kind. Values are in Kafka's flexible encoding. A
snapshot has everything; an update has the batches that have changed since, and counts only with its snapshot. A
snapshot's key without a value is a tombstone. Pure functions; the share shard is the only caller.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence

from msgspec import Struct

from headrace.coordinators.record_fields import Cursor, string, tagged, varint
from headrace.coordinators.shard import Record
from headrace.model.share_state import SharePartition, StateBatch
from headrace.wire.errors import Malformed

SNAPSHOT, UPDATE = 0, 1
VALUE = 0
UNKNOWN_COUNT = -1
_COUNT = 0  # the tag
_WHAT = "the share coordinator"
_BATCH = struct.Struct(">qqbh")


class Snapshot(Struct, frozen=True):
    epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    created_ms: int
    written_ms: int
    batches: tuple[StateBatch, ...]
    complete_count: int = UNKNOWN_COUNT


class Update(Struct, frozen=True):
    epoch: int
    """Of the snapshot that it belongs to."""
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    complete_count: int = UNKNOWN_COUNT


def snapshot_record(key: SharePartition, snapshot: Snapshot) -> Record:
    head = struct.pack(
        ">hiiiqqq",
        VALUE,
        snapshot.epoch,
        snapshot.state_epoch,
        snapshot.leader_epoch,
        snapshot.start_offset,
        snapshot.created_ms,
        snapshot.written_ms,
    )
    return _key(SNAPSHOT, key), head + _batches(snapshot.batches) + _tags(snapshot.complete_count)


def update_record(key: SharePartition, update: Update) -> Record:
    head = struct.pack(">hiiq", VALUE, update.epoch, update.leader_epoch, update.start_offset)
    return _key(UPDATE, key), head + _batches(update.batches) + _tags(update.complete_count)


def tombstone(key: SharePartition) -> Record:
    return _key(SNAPSHOT, key), None


def _key(kind: int, key: SharePartition) -> bytes:
    return struct.pack(">h", kind) + string(key.group) + key.topic_id.bytes + struct.pack(">i", key.partition)


def _batches(batches: Sequence[StateBatch]) -> bytes:
    parts = [varint(len(batches) + 1)]
    for batch in batches:
        parts.append(_BATCH.pack(batch.first_offset, batch.last_offset, batch.state, batch.delivery_count))
        parts.append(b"\0")
    return b"".join(parts)


def _tags(complete_count: int) -> bytes:
    return tagged({} if complete_count == UNKNOWN_COUNT else {_COUNT: struct.pack(">i", complete_count)})


def read_key(raw: bytes) -> tuple[int, SharePartition]:
    """The kind of the record, and whose it is."""
    cursor = Cursor(raw, _WHAT)
    kind = cursor.version((SNAPSHOT, UPDATE))
    group, topic_id = cursor.string(), uuid.UUID(bytes=cursor.take(16))
    return kind, SharePartition(group, topic_id, cursor.number("i"))


def read_snapshot(raw: bytes) -> Snapshot:
    cursor = Cursor(raw, _WHAT)
    cursor.version((VALUE,))
    epoch, state_epoch, leader_epoch = cursor.number("i"), cursor.number("i"), cursor.number("i")
    start_offset, created_ms, written_ms = cursor.number("q"), cursor.number("q"), cursor.number("q")
    batches = _read_batches(cursor)
    return Snapshot(
        epoch, state_epoch, leader_epoch, start_offset, created_ms, written_ms, batches, _complete_count(cursor)
    )


def read_update(raw: bytes) -> Update:
    cursor = Cursor(raw, _WHAT)
    cursor.version((VALUE,))
    epoch, leader_epoch, start_offset = cursor.number("i"), cursor.number("i"), cursor.number("q")
    batches = _read_batches(cursor)
    return Update(epoch, leader_epoch, start_offset, batches, _complete_count(cursor))


def _read_batches(cursor: Cursor) -> tuple[StateBatch, ...]:
    batches = []
    for _ in range(cursor.varint() - 1):
        batch = StateBatch(*_BATCH.unpack(cursor.take(_BATCH.size)))
        if batch.last_offset < batch.first_offset:
            raise Malformed(f"a record of {_WHAT} has a batch that ends before it begins")
        cursor.tagged()
        batches.append(batch)
    return tuple(batches)


def _complete_count(cursor: Cursor) -> int:
    tags = cursor.tagged()
    return Cursor(tags[_COUNT], _WHAT).number("i") if _COUNT in tags else UNKNOWN_COUNT
