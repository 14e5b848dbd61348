"""What a partition remembers of idempotent producers: epoch and the last five batches of each (KIP-98, KIP-360).

`check` comes before the write and changes nothing, `remember` comes after it. A retry finds its first append among the
five, which is as many as a producer may have in flight. Leader, follower and recovery all come to the same state,
since it follows from the batch headers alone. Who has written nothing for a day is forgotten; time here is when this
broker took the batch, because a producer's own timestamps may be years old.

File `NNN.snapshot`, big-endian: the state after all batches before offset NNN.

    header    magic "HRPS" (4), version 1 (2), zeros (2), producers (4)
    producer  id (8), epoch (2), last use in ms (8), batches (2)
    batch     first sequence (4), last sequence (4), base offset (8), last offset (8), append time or -1 (8)
    end       CRC32C of everything before (4)

Validity: the CRC. Without a valid snapshot the state is made from batch headers; no snapshot is ever needed for truth.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import NamedTuple

from crc32c import crc32c

from headrace.wire.batches import LOG_APPEND_TIME, BatchHeader
from headrace.wire.errors import ErrorCode, KafkaError

EXPIRY_MS = 24 * 3600 * 1000
_REMEMBERED = 5
_MAX_SEQUENCE = 0x7FFFFFFF

_HEADER = struct.Struct(">4sHHI")
_PRODUCER = struct.Struct(">qhqH")
_BATCH = struct.Struct(">iiqqq")
_MAGIC = b"HRPS"
_VERSION = 1


class Written(NamedTuple):
    """One batch that is in the log."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    append_time_ms: int


class Producer:
    __slots__ = ("batches", "epoch", "used_ms")

    def __init__(self, epoch: int, used_ms: int) -> None:
        self.epoch = epoch
        self.used_ms = used_ms
        self.batches: deque[Written] = deque(maxlen=_REMEMBERED)


class ProducerStates:
    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}

    def __len__(self) -> int:
        return len(self.producers)

    def check(self, header: BatchHeader) -> Written | None:
        """The first append of a batch that comes again; None for a new one that may be written, else KafkaError."""
        producer = self.producers.get(header.producer_id)
        if producer is None:
            return None  # also one that was forgotten: only the producer knows its sequence (KIP-360)
        if header.producer_epoch < producer.epoch:
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"producer {header.producer_id} writes with epoch {header.producer_epoch}, it has been fenced by epoch "
                f"{producer.epoch}",
            )
        first = header.base_sequence
        if header.producer_epoch > producer.epoch:
            if first != 0:
                raise _out_of_order(header, 0)
            return None
        if not producer.batches:
            return None
        newest = producer.batches[-1]
        if follows(newest.last_sequence, first):
            return None
        last = header.last_sequence
        for written in producer.batches:
            if written.first_sequence == first and written.last_sequence == last:
                return written
        raise _out_of_order(header, (newest.last_sequence + 1) & _MAX_SEQUENCE)

    def check_next(self, before: BatchHeader, header: BatchHeader) -> None:
        """A second batch of one producer in the same write."""
        if before.producer_epoch != header.producer_epoch or not follows(before.last_sequence, header.base_sequence):
            raise _out_of_order(header, (before.last_sequence + 1) & _MAX_SEQUENCE)

    def remember(self, header: BatchHeader, base_offset: int, append_time_ms: int, now_ms: int) -> None:
        producer = self.producers.get(header.producer_id)
        if producer is None:
            producer = self.producers[header.producer_id] = Producer(header.producer_epoch, now_ms)
        elif header.producer_epoch > producer.epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.used_ms = now_ms
        if header.base_sequence >= 0:
            producer.batches.append(
                Written(
                    header.base_sequence,
                    header.last_sequence,
                    base_offset,
                    base_offset + header.last_offset_delta,
                    append_time_ms,
                )
            )

    def remember_stored(self, header: BatchHeader, now_ms: int) -> None:
        """A batch that lies in the log with its offset: found by recovery or sent by the leader."""
        append_time_ms = header.max_timestamp if header.attributes & LOG_APPEND_TIME else -1
        self.remember(header, header.base_offset, append_time_ms, now_ms)

    def last_offsets(self) -> dict[int, int]:
        """Per producer id the last offset of its newest batch, which compaction must not lose."""
        return {
            producer_id: producer.batches[-1].last_offset
            for producer_id, producer in list(self.producers.items())
            if producer.batches
        }

    def expire(self, now_ms: int) -> None:
        old = [pid for pid, producer in self.producers.items() if now_ms - producer.used_ms > EXPIRY_MS]
        for producer_id in old:
            del self.producers[producer_id]

    def encode(self) -> bytes:
        parts = [_HEADER.pack(_MAGIC, _VERSION, 0, len(self.producers))]
        for producer_id, producer in self.producers.items():
            parts.append(_PRODUCER.pack(producer_id, producer.epoch, producer.used_ms, len(producer.batches)))
            parts.extend(_BATCH.pack(*written) for written in producer.batches)
        body = b"".join(parts)
        return body + struct.pack(">I", crc32c(body))


def decode(data: bytes) -> ProducerStates | None:
    """The state in a snapshot; None if it is damaged or of another version."""
    if len(data) < _HEADER.size + 4 or crc32c(data[:-4]) != struct.unpack(">I", data[-4:])[0]:
        return None
    magic, version, _, count = _HEADER.unpack_from(data)
    if magic != _MAGIC or version != _VERSION:
        return None
    states = ProducerStates()
    at = _HEADER.size
    for _ in range(count):
        producer_id, epoch, used_ms, batches = _PRODUCER.unpack_from(data, at)
        at += _PRODUCER.size
        producer = states.producers[producer_id] = Producer(epoch, used_ms)
        for _ in range(batches):
            producer.batches.append(Written(*_BATCH.unpack_from(data, at)))
            at += _BATCH.size
    return states


def follows(last_sequence: int, sequence: int) -> bool:
    """Sequences count from 0 to 2^31 - 1 and start over."""
    return sequence == (last_sequence + 1) & _MAX_SEQUENCE


def _out_of_order(header: BatchHeader, expected: int) -> KafkaError:
    return KafkaError(
        ErrorCode.out_of_order_sequence_number,
        f"producer {header.producer_id} sent sequence {header.base_sequence}, expected {expected}",
    )
