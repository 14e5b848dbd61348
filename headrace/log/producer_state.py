"""What a partition remembers of producers: epoch, last five batches, open transaction (KIP-98, KIP-360, KIP-890).

`check` comes before the write and changes nothing, `remember` comes after it. A retry finds its first append among the
five, which is as many as a producer may have in flight. Leader, follower and recovery all come to the same state,
since it follows from the batch headers and the markers. A producer that has written nothing for a day (a setting) is
forgotten; time here is when this broker stored the batch, because a producer's own timestamps may be years old.

A partition remembers a limited number of producers (a setting). When one more comes, those that wrote least recently
are forgotten, but none with an open transaction. Least recently is approximate: `producers` is in the order in which
producers came, and one that has written since then is put at the end instead of being forgotten. So an append costs
nothing more, and replicas may forget different ones. That is harmless, because nobody is refused for being unknown:
only a retry of a batch whose producer was forgotten in between is written twice.

A transaction is open in a partition from its first batch there to its marker, and unstable until that is committed.
`open` is in the order of first offsets. A marker whose epoch is above that of the records fences what is left of them.

File `NNN.snapshot`, big-endian: the state after all batches before offset NNN.

    header    magic "HRPS" (4), version 2 (2), zeros (2), producers (4), ended transactions (4)
    producer  id (8), epoch (2), last use in ms (8), coordinator epoch or -1 (4), first offset of its open transaction
              or -1 (8), batches (2)
    batch     first sequence (4), last sequence (4), base offset (8), last offset (8), append time or -1 (8)
    ended     first offset (8), offset of the marker (8); those whose marker was not known to be committed
    end       CRC32C of everything before (4)

Validity: the CRC. Without a valid snapshot the state is made from batch headers; no snapshot is ever needed for truth.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from msgspec import Struct

from headrace.wire.batches import CONTROL, LOG_APPEND_TIME, NO_SEQUENCE, TRANSACTIONAL, BatchHeader
from headrace.wire.checksum import crc32c
from headrace.wire.end_markers import EndMarker
from headrace.wire.errors import ErrorCode, KafkaError

EXPIRY_MS = 24 * 3600 * 1000
MOST = 20_000
_REMEMBERED = 5  # batches of a producer
_AT_ONCE = 64  # into so many parts the limit is divided; one part is forgotten at a time
_LOOKED_AT = 1_000  # producers at most, to find some that may be forgotten
_MAX_SEQUENCE = 0x7FFFFFFF
_ANY = -2  # as long as no batch is known; no batch has this sequence

_HEADER = struct.Struct(">4sHHII")
_PRODUCER = struct.Struct(">qhqiqH")
_BATCH = struct.Struct(">iiqqq")
_ENDED = struct.Struct(">qq")
_BATCH_BYTES = _BATCH.size
_FULL_BYTES = _REMEMBERED * _BATCH_BYTES
_pack_batch = _BATCH.pack
_MAGIC = b"HRPS"
_VERSION = 2


class ProducerLimits(NamedTuple):
    """How long producers are remembered, and how many in one partition."""

    expiry_ms: int = EXPIRY_MS
    most: int = MOST


class Written(NamedTuple):
    """One batch that is in the log."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    append_time_ms: int


class ProducerFacts(NamedTuple):
    """What DescribeProducers tells."""

    producer_id: int
    epoch: int
    last_sequence: int
    used_ms: int
    coordinator_epoch: int
    open_since: int
    """The first offset of the open transaction, or -1."""


class EndedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    marker_offset: int
    stable_offset: int
    """The first offset of the oldest transaction that is still open, or the one after the marker."""


class Producer(Struct, gc=False):
    """Small, as there may be many: one object besides its numbers, with the batches as a snapshot has them."""

    epoch: int
    used_ms: int
    listed_ms: int
    """As of when it stands in its place among all producers; it has written since then if `used_ms` is later."""
    coordinator_epoch: int = -1
    """Of the last marker."""
    next_sequence: int = _ANY
    """What the next batch begins with; below zero as long as that is not known."""
    packed: bytes = b""
    """The last batches."""

    @property
    def batches(self) -> list[Written]:
        return [Written(*fields) for fields in _BATCH.iter_unpack(self.packed)]

    @property
    def newest(self) -> Written | None:
        return Written(*_BATCH.unpack_from(self.packed, len(self.packed) - _BATCH_BYTES)) if self.packed else None

    def enter(self, epoch: int) -> None:
        """A new epoch, of which no batch has come."""
        self.epoch = epoch
        self.packed = b""
        self.next_sequence = _ANY

    def wrote(self, first_sequence: int, last_sequence: int, base_offset: int, last_offset: int, time_ms: int) -> None:
        """A batch; the fields of `Written`."""
        packed = self.packed
        if len(packed) == _FULL_BYTES:
            packed = packed[_BATCH_BYTES:]
        self.packed = packed + _pack_batch(first_sequence, last_sequence, base_offset, last_offset, time_ms)
        self.next_sequence = (last_sequence + 1) & _MAX_SEQUENCE


class ProducerStates:
    __slots__ = ("ended", "most", "open", "producers")

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.producers: dict[int, Producer] = {}
        self.open: dict[int, int] = {}  # by producer id, the first offset of its transaction
        self.ended: list[tuple[int, int]] = []  # (first offset, marker), until the marker is known to be committed

    def __len__(self) -> int:
        return len(self.producers)

    def check(self, header: BatchHeader) -> Written | None:
        """The first append of a batch that comes again; None for a new one that may be written, else KafkaError."""
        producer = self.producers.get(header.producer_id)
        if producer is None:
            return None  # also one that was forgotten: only the producer knows its sequence (KIP-360)
        epoch, first = header.producer_epoch, header.base_sequence
        if first == producer.next_sequence and epoch == producer.epoch and not self.open:
            return None  # as nearly all are
        if epoch < producer.epoch:
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"producer {header.producer_id} writes with epoch {epoch}, it was fenced by epoch {producer.epoch}",
            )
        if header.producer_id in self.open and not header.attributes & TRANSACTIONAL:
            raise _outside_its_transaction(header)
        if first < 0:
            return None  # the broker's own, in the name of a producer
        if epoch > producer.epoch:
            if first != 0:
                raise _out_of_order(header, 0)
            return None
        if producer.next_sequence in (first, _ANY):
            return None
        last = header.last_sequence
        for written in producer.batches:
            if written.first_sequence == first and written.last_sequence == last:
                return written
        raise _out_of_order(header, producer.next_sequence)

    def check_next(self, before: BatchHeader, header: BatchHeader) -> None:
        """A second batch of one producer in the same write."""
        if before.producer_epoch != header.producer_epoch or not follows(before.last_sequence, header.base_sequence):
            raise _out_of_order(header, _after(before.last_sequence))
        if before.attributes & TRANSACTIONAL and not header.attributes & TRANSACTIONAL:
            raise _outside_its_transaction(header)

    def check_end(self, producer_id: int, epoch: int, coordinator_epoch: int, *, strict: bool) -> bool:
        """Whether a marker is to be written: False if it is there already, KafkaError if it may not be.

        `strict`: a marker has an epoch above that of its records (KIP-890), so one with the epoch of records that are
        there belongs to the transaction before theirs.
        """
        producer = self.producers.get(producer_id)
        if producer is None:
            return True
        if coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                ErrorCode.transaction_coordinator_fenced,
                f"the coordinator of epoch {coordinator_epoch} ends a transaction of producer {producer_id}, but epoch "
                f"{producer.coordinator_epoch} has taken over",
            )
        is_open = producer_id in self.open
        if epoch < producer.epoch or (strict and is_open and epoch == producer.epoch):
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"producer {producer_id} is at epoch {producer.epoch}, and the end of its transaction at {epoch}",
            )
        if is_open or epoch > producer.epoch:
            return True
        return not strict and coordinator_epoch > producer.coordinator_epoch

    def remember(self, header: BatchHeader, base_offset: int, append_time_ms: int, now_ms: int) -> None:
        producer_id, first = header.producer_id, header.base_sequence
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self._added(header, now_ms)
        elif header.producer_epoch > producer.epoch:
            producer.enter(header.producer_epoch)
        producer.used_ms = now_ms
        if header.attributes & TRANSACTIONAL and producer_id not in self.open:
            self.open[producer_id] = base_offset
        if first >= 0:
            delta = header.last_offset_delta
            producer.wrote(first, (first + delta) & _MAX_SEQUENCE, base_offset, base_offset + delta, append_time_ms)

    def _added(self, header: BatchHeader, now_ms: int) -> Producer:
        if len(self.producers) >= self.most:
            self._forget_some()
        producer = self.producers[header.producer_id] = Producer(header.producer_epoch, now_ms, now_ms)
        return producer

    def _forget_some(self) -> None:
        """Those that have not written since they came, or since this saw them last; a few at a time, so that walking
        over the gap that they leave costs little."""
        most = self.most - 1 - self.most // _AT_ONCE
        for producer_id, producer in list(islice(self.producers.items(), _LOOKED_AT)):
            if len(self.producers) <= most:
                return
            del self.producers[producer_id]
            if producer_id in self.open or producer.used_ms > producer.listed_ms:
                producer.listed_ms = producer.used_ms
                self.producers[producer_id] = producer

    def remember_batch(self, header: BatchHeader, marker: Callable[[], EndMarker | None], now_ms: int) -> None:
        """A batch that lies in the log with its offset. `marker` says how it ends a transaction, if it is a control
        batch."""
        if header.attributes & CONTROL:
            end = marker()
            if end is not None:
                self.remember_end(header, end, now_ms)
        elif header.producer_id >= 0:
            self.remember_stored(header, now_ms)

    def remember_stored(self, header: BatchHeader, now_ms: int) -> None:
        """A producer's batch of records that lies in the log with its offset."""
        append_time_ms = header.max_timestamp if header.attributes & LOG_APPEND_TIME else -1
        self.remember(header, header.base_offset, append_time_ms, now_ms)

    def remember_end(self, header: BatchHeader, marker: EndMarker, now_ms: int) -> None:
        """A marker that lies in the log."""
        producer_id, offset = header.producer_id, header.base_offset
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self._added(header, now_ms)
        elif header.producer_epoch > producer.epoch:
            producer.enter(header.producer_epoch)
            producer.wrote(NO_SEQUENCE, NO_SEQUENCE, offset, offset, -1)  # what follows it is 0
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.used_ms = now_ms
        first_offset = self.open.pop(producer_id, None)
        if first_offset is not None:
            self.ended.append((first_offset, offset))

    def ended_by(self, header: BatchHeader) -> EndedTxn | None:
        """What a marker will end, asked before it is remembered; None if the log has no record of that transaction."""
        first_offset = self.open.get(header.producer_id)
        if first_offset is None:
            return None
        still_open = (first for producer_id, first in self.open.items() if producer_id != header.producer_id)
        return EndedTxn(header.producer_id, first_offset, header.base_offset, next(still_open, header.next_offset))

    def become(self, other: ProducerStates) -> None:
        """Take over all that another one knows, which is not used any more."""
        self.ended, self.open, self.producers = other.ended, other.open, other.producers

    def first_unstable(self) -> int | None:
        """Where the oldest transaction starts that is open, or whose end is not known to be committed."""
        if not self.open and not self.ended:
            return None
        firsts = [next(iter(self.open.values()))] if self.open else []
        return min([*firsts, *(first for first, _ in self.ended)], default=None)

    def settle(self, high_watermark: int) -> None:
        """Markers before `high_watermark` are committed."""
        if self.ended:
            self.ended = [ended for ended in self.ended if ended[1] >= high_watermark]

    def described(self) -> list[ProducerFacts]:
        return [
            ProducerFacts(
                producer_id,
                producer.epoch,
                NO_SEQUENCE if (newest := producer.newest) is None else newest.last_sequence,
                producer.used_ms,
                producer.coordinator_epoch,
                self.open.get(producer_id, -1),
            )
            for producer_id, producer in self.producers.items()
        ]

    def last_offsets(self) -> dict[int, int]:
        """Per producer id the last offset of its newest batch, or of the marker that raised its epoch after that, which
        compaction must not lose."""
        return {
            producer_id: newest.last_offset
            for producer_id, producer in list(self.producers.items())
            if (newest := producer.newest) is not None
        }

    def expire(self, used_before_ms: int) -> None:
        old = [
            producer_id
            for producer_id, producer in self.producers.items()
            if producer.used_ms < used_before_ms and producer_id not in self.open
        ]
        for producer_id in old:
            del self.producers[producer_id]

    def encode(self) -> bytes:
        parts = [_HEADER.pack(_MAGIC, _VERSION, 0, len(self.producers), len(self.ended))]
        for producer_id, producer in self.producers.items():
            parts.append(
                _PRODUCER.pack(
                    producer_id,
                    producer.epoch,
                    producer.used_ms,
                    producer.coordinator_epoch,
                    self.open.get(producer_id, -1),
                    len(producer.packed) // _BATCH_BYTES,
                )
            )
            parts.append(producer.packed)
        parts.extend(_ENDED.pack(*ended) for ended in self.ended)
        body = b"".join(parts)
        return body + struct.pack(">I", crc32c(body))


def decode(data: bytes) -> ProducerStates | None:
    """The state in a snapshot; None if it is damaged or of another version."""
    if len(data) < _HEADER.size + 4 or crc32c(data[:-4]) != struct.unpack(">I", data[-4:])[0]:
        return None
    magic, version, _, count, ended = _HEADER.unpack_from(data)
    if magic != _MAGIC or version != _VERSION:
        return None
    states = ProducerStates()
    transactions: list[tuple[int, int]] = []
    at = _HEADER.size
    for _ in range(count):
        producer_id, epoch, used_ms, coordinator_epoch, open_since, batches = _PRODUCER.unpack_from(data, at)
        at += _PRODUCER.size
        producer = states.producers[producer_id] = Producer(epoch, used_ms, used_ms, coordinator_epoch)
        if open_since >= 0:
            transactions.append((open_since, producer_id))
        end = at + batches * _BATCH_BYTES
        producer.packed = data[max(at, end - _FULL_BYTES) : end]
        if (newest := producer.newest) is not None:
            producer.next_sequence = _after(newest.last_sequence)
        at = end
    states.open = {producer_id: open_since for open_since, producer_id in sorted(transactions)}
    states.ended = [_ENDED.unpack_from(data, at + _ENDED.size * place) for place in range(ended)]
    return states


def follows(last_sequence: int, sequence: int) -> bool:
    return sequence == _after(last_sequence)


def _after(sequence: int) -> int:
    """Sequences count from 0 to 2^31 - 1 and start over."""
    return (sequence + 1) & _MAX_SEQUENCE


def _out_of_order(header: BatchHeader, expected: int) -> KafkaError:
    return KafkaError(
        ErrorCode.out_of_order_sequence_number,
        f"producer {header.producer_id} sent sequence {header.base_sequence}, expected {expected}",
    )


def _outside_its_transaction(header: BatchHeader) -> KafkaError:
    return KafkaError(
        ErrorCode.invalid_txn_state,
        f"producer {header.producer_id} has a transaction open here, and sent a batch that is not part of it",
    )
