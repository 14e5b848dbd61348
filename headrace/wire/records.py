"""The records of a batch of any codec: encoding, decoding and scanning.

Called by all code that must open a batch: the offsets topic, compaction, lookups by time, the command line. The
broker's hot path does not: it makes no object of a record (_record_walk.pxi). The compiled twin does the work if it
could be built, otherwise the pure-Python twin; both return the same results.

Bad bytes raise only Malformed. The CRC is not checked: a caller that reads from an untrusted source calls
`batches.crc_ok` first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.wire import batches, compression
from headrace.wire.batches import HEADER, HEADER_BYTES, LOG_APPEND_TIME, MAGIC, BatchHeader, Buffer
from headrace.wire.errors import Malformed
from headrace.wire.record import Headers, Record

if TYPE_CHECKING:
    from headrace.wire import _records_py as codec_twin
else:
    try:
        from headrace.wire import _records as codec_twin
    except ImportError:
        from headrace.wire import _records_py as codec_twin

__all__ = [
    "COMPILED",
    "Headers",
    "Record",
    "check_records",
    "decode",
    "decode_loose",
    "decode_section",
    "default_limit_bytes",
    "emptied_batch",
    "encode_batch",
    "fill_in_header",
    "filter_records",
    "filtered_batch",
    "first_at_or_after",
    "iterate",
    "keyless",
    "last_record_offset",
    "open_batch",
    "scan_headers",
    "scan_keys",
    "seal_batch",
    "times_outside",
]

# These take the records section of an opened batch.
check_records = codec_twin.check_records
filter_records = codec_twin.filter_records
keyless = codec_twin.keyless
scan_headers = codec_twin.scan_headers
scan_keys = codec_twin.scan_keys
times_outside = codec_twin.times_outside

COMPILED: bool = codec_twin.__name__.endswith("._records")

_LIMIT_BYTES = 64 * 1024 * 1024
_LIMIT_RATIO = 16
_LARGEST_DELTA = 0x7FFFFFFF
_ANY_TIME = -(2**63)


def default_limit_bytes(compressed_bytes: int) -> int:
    """The largest decompressed size of a batch: enough for any real batch, too little for a decompression bomb."""
    return _LIMIT_BYTES + _LIMIT_RATIO * compressed_bytes


def encode_batch(
    records: Sequence[Record],
    *,
    codec: int = compression.NONE,
    producer_id: int = batches.NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = batches.NO_SEQUENCE,
    attributes: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """One batch with these records, whose offsets increase and start at `base_offset` or later."""
    if not records:
        raise ValueError("a batch needs a record")
    if records[0].offset < base_offset:
        raise ValueError(f"offset {records[0].offset} is before the batch's base offset {base_offset}")
    base_timestamp = records[0].timestamp
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes | codec,
        last_offset_delta=records[-1].offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return seal_batch(header, codec_twin.encode_records(records, base_offset, base_timestamp))


def seal_batch(header: BatchHeader, section: Buffer, level: int | None = None) -> bytearray:
    """The batch with this header and these uncompressed records; sets length and CRC."""
    batch = bytearray(HEADER_BYTES)
    batch += compression.compress(header.codec, section, level)
    return fill_in_header(batch, header)


def fill_in_header(batch: bytearray, header: BatchHeader) -> bytearray:
    """Write the header into the space before the records; sets length and CRC. Returns the same buffer."""
    length = len(batch) - batches.PREFIX_BYTES
    HEADER.pack_into(batch, 0, *header._replace(length=length))
    batches.restamp_crc(batch, 0, length)
    return batch


def filtered_batch(
    header: BatchHeader, section: Buffer, keep: Sequence[bool], timestamp_shift: int = 0, level: int | None = None
) -> bytearray:
    """The batch with only the records for which `keep` is true, at least one. The max timestamp is theirs, the
    rest of the header stays. `timestamp_shift` is added to each timestamp delta, for a new base timestamp."""
    left = filter_records(section, keep, timestamp_shift)
    header = header._replace(record_count=sum(keep))
    if not header.attributes & LOG_APPEND_TIME:
        header = header._replace(max_timestamp=_last_and_latest(header, left)[1])
    return seal_batch(header, left, level)


def emptied_batch(header: BatchHeader) -> bytearray:
    """The header alone, with its offsets and sequences. Without a codec, since clients would decompress zero bytes."""
    attributes = header.attributes & ~(batches.CODEC_MASK | batches.DELETE_HORIZON)
    return seal_batch(header._replace(attributes=attributes, base_timestamp=header.max_timestamp, record_count=0), b"")


def open_batch(batch: Buffer, at: int = 0, limit_bytes: int | None = None) -> tuple[BatchHeader, Buffer]:
    """The header of the batch at `at`, and its records section, decompressed to at most `limit_bytes`."""
    if len(batch) - at < HEADER_BYTES:
        raise Malformed(f"a record batch is truncated: {len(batch) - at} bytes left")
    header = batches.read_header(batch, at)
    if header.magic != MAGIC:
        raise Malformed(f"record format {header.magic}, not {MAGIC}")
    if header.length < HEADER_BYTES - batches.PREFIX_BYTES or header.size > len(batch) - at:
        raise Malformed(f"a batch of length {header.length}, {len(batch) - at} bytes left")
    body = memoryview(batch)[at + HEADER_BYTES : at + header.size]
    if header.record_count == 0 and not body:
        return header, body  # compaction leaves empty batches, whatever their codec
    if limit_bytes is None:
        limit_bytes = default_limit_bytes(len(body))
    return header, compression.decompress(header.codec, body, limit_bytes)


def decode(batch: Buffer, at: int = 0, *, limit_bytes: int | None = None) -> list[Record]:
    """The records of the batch at `at`, with absolute offsets."""
    header, section = open_batch(batch, at, limit_bytes)
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    return codec_twin.decode_records(
        section,
        header.record_count,
        header.base_offset,
        header.last_offset_delta,
        header.base_timestamp,
        append_time=append_time,
    )


def decode_section(section: Buffer, count: int, last_offset_delta: int, append_time: int) -> list[Record]:
    """Records that have been put together from several batches; their offsets are those that they had there."""
    return codec_twin.decode_records(section, count, 0, last_offset_delta, 0, append_time=append_time)


def decode_loose(section: Buffer, count: int) -> list[Record]:
    """Records that have been put together from several batches; offsets and times count from those of each."""
    return codec_twin.decode_records(section, count, 0, _LARGEST_DELTA, 0, append_time=None)


def iterate(buffer: Buffer, *, limit_bytes: int | None = None) -> Iterator[Record]:
    """The records of all batches in `buffer`, decoded batch by batch; Malformed if the last is truncated."""
    at = 0
    while at < len(buffer):
        yield from decode(buffer, at, limit_bytes=limit_bytes)
        at += batches.read_header(buffer, at).size


def _last_and_latest(header: BatchHeader, section: Buffer) -> tuple[int, int]:
    return codec_twin.last_and_latest(
        section, header.record_count, header.base_offset, header.last_offset_delta, header.base_timestamp
    )


def first_at_or_after(batch: Buffer, timestamp: int, at: int = 0, *, from_offset: int = 0) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record of this batch, from `from_offset` on, at or after `timestamp`."""
    header, section = open_batch(batch, at)
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    found = codec_twin.first_dated(
        section,
        header.record_count,
        header.base_offset,
        header.last_offset_delta,
        header.base_timestamp,
        timestamp if append_time is None else _ANY_TIME,
        from_offset,
    )
    if found is None or append_time is None:
        return found
    return (found[0], append_time) if append_time >= timestamp else None


def last_record_offset(batch: Buffer, at: int = 0, limit_bytes: int | None = None) -> int:
    """The offset of the last record of this batch, which is not empty; the header's last offset may be higher."""
    return _last_and_latest(*open_batch(batch, at, limit_bytes))[0]
