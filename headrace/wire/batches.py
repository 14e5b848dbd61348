"""Record batches as opaque bytes with a header of 61 bytes (Kafka's format v2, "magic 2").

     0  base offset (8)        8  length (4): bytes after this field      12  leader epoch (4)     16  magic (1)
    17  CRC32C (4)            21  attributes (2)      23  last offset delta (4)
    27  base timestamp (8)    35  max timestamp (8)
    43  producer id (8)       51  producer epoch (2)  53  base sequence (4)                57  record count (4)
    61  the records, compressed as the attributes say

The CRC covers everything from the attributes on, so base offset and leader epoch are set in place without a new CRC.
A broker reads headers. It looks at records only once, when a client sends them (log/admission.py), and never opens what
is compressed, except on topics whose settings require it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

from headrace.wire.checksum import crc32c
from headrace.wire.errors import ErrorCode, KafkaError

Buffer = bytes | bytearray | memoryview

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
PREFIX_BYTES = 12  # base offset and length, which are enough to find the next batch
MAGIC = 2

CODEC_MASK = 0x07
LAST_CODEC = 4
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40  # base timestamp is the time after which tombstones may be removed (KIP-534)
NOTE = 0x80  # a control batch that the broker has written for itself (notes.py)
PRODUCIBLE = CODEC_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL  # attributes that mean something from a client

NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

_PREFIX = struct.Struct(">qi")
_OFFSET_AND_LENGTH_AND_EPOCH = struct.Struct(">qii")
_CRC_AND_ATTRIBUTES = struct.Struct(">Ih")


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """The whole batch in bytes, header included."""
        return self.length + PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_note(self) -> bool:
        return bool(self.attributes & NOTE)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def last_sequence(self) -> int:
        """Sequences wrap around from 2^31 - 1 to 0."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


# As BatchHeader._make, in half the time.
_header = cast("Callable[[type[BatchHeader], tuple[Any, ...]], BatchHeader]", tuple.__new__)


def read_header(buffer: Buffer, at: int = 0) -> BatchHeader:
    """The header at `at`; struct.error if fewer than 61 bytes are there."""
    return _header(BatchHeader, HEADER.unpack_from(buffer, at))


def walk(buffer: Buffer, at: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every complete batch from `at` on; stops at the first that is truncated or invalid."""
    end = len(buffer)
    while at + HEADER_BYTES <= end:
        header = read_header(buffer, at)
        if header.length < HEADER_BYTES - PREFIX_BYTES or at + header.length + PREFIX_BYTES > end:
            return
        yield at, header
        at += header.length + PREFIX_BYTES


def crc_ok(buffer: Buffer, at: int, header: BatchHeader) -> bool:
    view = memoryview(buffer)
    return bool(crc32c(view[at + 21 : at + header.length + PREFIX_BYTES]) == header.crc)


def split_produced(records: memoryview) -> list[tuple[int, BatchHeader]]:
    """The batches of one partition in a Produce request, each fully checked: lengths, magic, counts, CRC.

    Raises KafkaError as a Kafka broker would, so that no invalid batch reaches the log.
    """
    found: list[tuple[int, BatchHeader]] = []
    at, end = 0, len(records)
    while at < end:
        if at + HEADER_BYTES > end:
            if end - at > 16 and records[at + 16] != MAGIC:
                raise KafkaError(ErrorCode.unsupported_for_message_format, f"record format {records[at + 16]}, not 2")
            raise KafkaError(ErrorCode.corrupt_message, f"a record batch is truncated: {end - at} bytes left")
        header = _header(BatchHeader, HEADER.unpack_from(records, at))
        if header.magic != MAGIC:
            raise KafkaError(ErrorCode.unsupported_for_message_format, f"record format {header.magic}, not 2")
        stop = at + header.length + PREFIX_BYTES
        if header.length < HEADER_BYTES - PREFIX_BYTES or stop > end:
            raise KafkaError(ErrorCode.corrupt_message, f"a batch of length {header.length}, {end - at} bytes left")
        if header.last_offset_delta != header.record_count - 1 or header.record_count <= 0:
            raise KafkaError(ErrorCode.invalid_record, "the record count of a batch does not match its offsets")
        if crc32c(records[at + 21 : stop]) != header.crc:
            raise KafkaError(ErrorCode.corrupt_message, "a record batch does not match its CRC")
        if header.attributes & CODEC_MASK > LAST_CODEC:
            raise KafkaError(ErrorCode.unsupported_compression_type, f"compression codec {header.codec} is unknown")
        found.append((at, header))
        at = stop
    if not found:
        raise KafkaError(ErrorCode.invalid_record, "a Produce request without a record batch")
    return found


def stamp(buffer: bytearray | memoryview, at: int, base_offset: int, length: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into the batch at `at`; the CRC does not cover them."""
    _OFFSET_AND_LENGTH_AND_EPOCH.pack_into(buffer, at, base_offset, length, leader_epoch)


def stamp_max_timestamp(buffer: bytearray | memoryview, at: int, header: BatchHeader, newest: int) -> BatchHeader:
    """Make the header name this time as that of the latest record; the header as it is now."""
    struct.pack_into(">q", buffer, at + 35, newest)
    restamp_crc(buffer, at, header.length)
    return read_header(buffer, at)


def stamp_append_time(buffer: bytearray | memoryview, at: int, header: BatchHeader, now_ms: int) -> None:
    """Make the whole batch carry the broker's time (message.timestamp.type=LogAppendTime)."""
    attributes = header.attributes | LOG_APPEND_TIME
    struct.pack_into(">h", buffer, at + 21, attributes)
    struct.pack_into(">q", buffer, at + 35, now_ms)
    restamp_crc(buffer, at, header.length)


def restamp_crc(buffer: bytearray | memoryview, at: int, length: int) -> None:
    struct.pack_into(">I", buffer, at + 17, crc32c(memoryview(buffer)[at + 21 : at + length + PREFIX_BYTES]))
