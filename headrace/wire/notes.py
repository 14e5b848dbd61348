"""Notes: what a broker writes into a log for itself, between the batches of its clients.

A note is a control batch of no producer with the attribute 0x80 and one record without a time. Key: version 0 (2),
type 1 (2), so that a client that meets one takes it for the end of a transaction of nobody and skips it. Value,
big-endian:

     0  zeros (6), as a commit marker has there       6  version 1 (1)        7  kind (1)
     8  mates (4): batches that belong to it         12  CRC of the last mate (4)
    16  producer id or -1 (8)                        24  base timestamp of the records (8)
    32  kept (4)                                     36  changed (4)
    40  of each kept record: id (8); then of each: due time in ms (8); of each: digest of its key (8); of each: where it
        ends among the records (4)
    ..  of each changed one: id (8); then of each: its next due time in ms, or -1 (8)
    ..  the kept records, one after the other, as in a batch

    kind     1 PARK     records were taken out of the mate and wait for their time. Their ids count from the mate's
                        first offset; with a producer id, they wait for the end of that transaction first. What has
                        changed was moved, or cancelled (-1)
             2 RELEASE  the mate has the records of the changed ids; -1 means that this was the last time
             3 REPARK   records that wait have been written again, ids as they were, with times that count from 0
             4 CANCEL   the changed ids are gone: DeleteRecords has passed them

Validity: a note counts once all its mates follow it directly, and the last has that CRC. Else it says nothing: a crash
or a change of leader came between. The mates of one write are its only ones, and a note without mates counts at once.
"""

from __future__ import annotations

import struct
import sys
from array import array
from enum import IntEnum

from msgspec import Struct, field

from headrace.wire._records_py import _varint
from headrace.wire.batches import CONTROL, HEADER_BYTES, NO_PRODUCER_ID, NO_TIMESTAMP, NOTE, Buffer, read_header
from headrace.wire.errors import Malformed
from headrace.wire.record import Record
from headrace.wire.records import decode, encode_batch

_KEY = struct.pack(">hh", 0, 1)
_HEAD = struct.Struct(">6xBBiIqqii")
_VERSION = 1
_VERSION_AT = 6
_KEPT_BYTES, _CHANGED_BYTES = 28, 16


class NoteKind(IntEnum):
    PARK = 1
    RELEASE = 2
    REPARK = 3
    CANCEL = 4


def _longs() -> array[int]:
    return array("q")


def _ints() -> array[int]:
    return array("I")


class Note(Struct):
    kind: NoteKind
    mates: int = 0
    mate_crc: int = 0
    producer_id: int = NO_PRODUCER_ID
    base_timestamp: int = 0
    ids: array[int] = field(default_factory=_longs)
    dues: array[int] = field(default_factory=_longs)
    keys: array[int] = field(default_factory=_longs)
    ends: array[int] = field(default_factory=_ints)
    changed: array[int] = field(default_factory=_longs)
    next_dues: array[int] = field(default_factory=_longs)
    records: Buffer = b""

    def record(self, place: int) -> Buffer:
        """The bytes of one kept record, as in a batch."""
        return self.records[self.ends[place - 1] if place else 0 : self.ends[place]]

    def first_id(self, base_offset: int) -> int:
        """What its ids count from, if it lies at this offset."""
        return base_offset + 1 if self.kind is NoteKind.PARK else 0


def encode_note(note: Note) -> bytearray:
    """The batch; its offset is 0 and its leader epoch is not set yet."""
    head = _HEAD.pack(
        _VERSION,
        note.kind,
        note.mates,
        note.mate_crc,
        note.producer_id,
        note.base_timestamp,
        len(note.ids),
        len(note.changed),
    )
    columns = (note.ids, note.dues, note.keys, note.ends, note.changed, note.next_dues)
    value = b"".join((head, *map(_swapped, columns), note.records))
    return encode_batch([Record(0, NO_TIMESTAMP, _KEY, value)], attributes=CONTROL | NOTE)


def table_bytes(prefix: Buffer) -> int | None:
    """How many bytes of a note's batch come before its records, by its first ones; None if this is no sound note."""
    try:
        at = _value_at(prefix)
        version, *_, kept, changed = _HEAD.unpack_from(prefix, at)
    except (Malformed, struct.error):
        return None
    if version != _VERSION or kept < 0 or changed < 0:
        return None
    return at + _HEAD.size + _KEPT_BYTES * int(kept) + _CHANGED_BYTES * int(changed)


def read_table(table: Buffer) -> Note:
    """A note without its records, by as many bytes of its batch as `table_bytes` has said."""
    return _columns(bytes(table[_value_at(table) :]))[0]


def _value_at(batch: Buffer) -> int:
    """Where the value begins of the one record of a batch."""
    data = memoryview(batch)
    at = HEADER_BYTES
    _, at = _varint(data, at)
    _, at = _varint(data, at + 1, 64)
    _, at = _varint(data, at)
    key_bytes, at = _varint(data, at)
    _, at = _varint(data, at + max(0, key_bytes))
    return at


def read_note(buffer: Buffer, at: int = 0) -> Note | None:
    """The note in the batch at `at`; None if it is none, or one of a later version."""
    try:
        if not read_header(buffer, at).attributes & NOTE:
            return None
        (record,) = decode(buffer, at)
        return None if record.value is None else _note(record.value)
    except (Malformed, ValueError, IndexError, struct.error):
        return None


def _note(value: bytes) -> Note | None:
    if value[_VERSION_AT] != _VERSION:
        return None
    note, at = _columns(value)
    note.records = records = memoryview(value)[at:]
    if any(map(int.__gt__, note.ends, note.ends[1:])) or (note.ends[-1] if note.ends else 0) != len(records):
        return None
    return note


def _columns(value: bytes) -> tuple[Note, int]:
    """All but the records, and where these begin."""
    _, kind, mates, crc, producer_id, base_timestamp, kept, changed = _HEAD.unpack_from(value)
    if kept < 0 or changed < 0 or mates < 0:
        raise Malformed("a note with fewer than no records or mates")
    at = _HEAD.size
    columns: list[array[int]] = []
    for code, count in (("q", kept), ("q", kept), ("q", kept), ("I", kept), ("q", changed), ("q", changed)):
        column = array(code)
        size = column.itemsize * count
        if at + size > len(value):
            raise Malformed("a note is truncated")
        column.frombytes(value[at : at + size])
        columns.append(_native(column))
        at += size
    ids, dues, keys, ends, changed_ids, next_dues = columns
    return Note(
        NoteKind(kind), mates, crc, producer_id, base_timestamp, ids, dues, keys, ends, changed_ids, next_dues
    ), at


def _swapped(column: array[int]) -> bytes:
    return _native(array(column.typecode, column)).tobytes()


def _native(column: array[int]) -> array[int]:
    """From big-endian, or to it."""
    if sys.byteorder == "little":
        column.byteswap()
    return column
