"""The commit or abort marker of a transaction in a partition: a control batch of one record (KIP-98).

Key: version 0 (2), type (2), 0 for abort and 1 for commit. Value: version 0 (2), epoch of the coordinator that decided
(4). The batch header has the producer id and epoch, and no sequence. Written by the log; read by the log and by the
coordinators' journals. Of other control batches `read_marker` returns None: types 2 and up, which headrace does not
use, and notes (notes.py), which look like a commit to clients that do not know them.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from headrace.wire.batches import CONTROL, NOTE, TRANSACTIONAL, Buffer, read_header
from headrace.wire.errors import Malformed
from headrace.wire.record import Record
from headrace.wire.records import decode, encode_batch

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_ABORT, _COMMIT = 0, 1


class EndMarker(NamedTuple):
    commit: bool
    coordinator_epoch: int


def encode_marker(marker: EndMarker, producer_id: int, producer_epoch: int, now_ms: int) -> bytearray:
    """The batch; its offset is 0 and its leader epoch is not set yet."""
    key = _KEY.pack(0, _COMMIT if marker.commit else _ABORT)
    record = Record(0, now_ms, key, _VALUE.pack(0, marker.coordinator_epoch), ())
    return encode_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, attributes=TRANSACTIONAL | CONTROL
    )


def skip_marker(first_offset: int, last_offset: int, leader_epoch: int, timestamp_ms: int) -> bytearray:
    """A marker that belongs to no transaction: clients skip it, and continue after `last_offset`."""
    key, value = _KEY.pack(0, _COMMIT), _VALUE.pack(0, 0)
    return encode_batch(
        [Record(last_offset, timestamp_ms, key, value, ())],
        attributes=CONTROL,
        base_offset=first_offset,
        leader_epoch=leader_epoch,
    )


def read_marker(buffer: Buffer, at: int = 0) -> EndMarker | None:
    """The marker in the control batch at `at`; None if the batch is of another type, a note, or was emptied by
    compaction."""
    try:
        if read_header(buffer, at).attributes & NOTE:
            return None
        records = decode(buffer, at)
        if len(records) != 1 or records[0].key is None or records[0].value is None:
            return None
        _, kind = _KEY.unpack_from(records[0].key)
        _, coordinator_epoch = _VALUE.unpack_from(records[0].value)
    except (Malformed, struct.error):
        return None
    return EndMarker(kind == _COMMIT, coordinator_epoch) if kind in (_ABORT, _COMMIT) else None
