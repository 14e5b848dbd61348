"""Batches whose CRC is right and whose records are not, each made by hand, and what a broker answers to them.

What is refused admission to a log (headrace/log/admission.py) is proven with these, on both of its paths, through a
broker, and with clients; docs/records.md has the same as a table. `make test-clients` sends them to Apache Kafka too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from headrace.wire import compression
from headrace.wire._records_py import _put_varint
from headrace.wire.batches import HEADER_BYTES, LOG_APPEND_TIME, MAGIC, BatchHeader
from headrace.wire.errors import ErrorCode
from headrace.wire.records import fill_in_header

NOW = 1_700_000_000_000
TAKEN = ErrorCode.none
INVALID, TIME, UNKNOWN = ErrorCode.invalid_record, ErrorCode.invalid_timestamp, ErrorCode.unknown_server_error

Blob = tuple[int, bytes]
"""The length that a field claims, and what follows."""


def varint(value: int) -> bytes:
    out = bytearray()
    _put_varint(out, value)
    return bytes(out)


def record(
    delta: int | bytes,
    *,
    time: int | bytes = 0,
    key: Blob = (3, b"key"),
    value: Blob = (5, b"value"),
    headers: tuple[tuple[Blob, Blob], ...] = (),
    header_count: int | None = None,
    after: bytes = b"",
    longer: int = 0,
    attributes: int = 0,
) -> bytes:
    """One record; `longer` is added to the length that it claims. Numbers given as bytes are written as they are."""
    body = bytearray([attributes])
    for number in (time, delta):
        body += number if isinstance(number, bytes) else varint(number)
    for size, data in (key, value):
        body += varint(size) + data
    body += varint(len(headers) if header_count is None else header_count)
    for name, content in headers:
        body += varint(name[0]) + name[1] + varint(content[0]) + content[1]
    body += after
    return varint(len(body) + longer) + bytes(body)


def sealed(
    section: bytes,
    count: int = 3,
    *,
    last: int | None = None,
    codec: int = 0,
    attributes: int = 0,
    base_time: int = NOW,
    max_time: int = NOW,
) -> bytearray:
    """A batch with these bytes behind its header, whose length and CRC are right."""
    header = BatchHeader(
        base_offset=0, length=0, leader_epoch=-1, magic=MAGIC, crc=0, attributes=attributes | codec,
        last_offset_delta=count - 1 if last is None else last, base_timestamp=base_time, max_timestamp=max_time,
        producer_id=-1, producer_epoch=-1, base_sequence=-1, record_count=count,
    )  # fmt: skip
    return fill_in_header(bytearray(HEADER_BYTES) + section, header)


def middle(bad: bytes, **fields: int) -> bytearray:
    """A batch of three records, of which the second is this."""
    return sealed(record(0) + bad + record(2), **fields)


def packed(codec: int, section: bytes) -> bytearray:
    return sealed(bytes(compression.compress(codec, section)), codec=codec)


GOOD = record(0) + record(1) + record(2)
THIRTY_YEARS = {"message.timestamp.before.max.ms": "1000000000000"}
COMPACTED = {"cleanup.policy": "compact"}


class Case(NamedTuple):
    what: str
    batch: bytearray
    answer: ErrorCode
    place: int | None
    """Of the first record that the answer names."""
    kafka: ErrorCode
    """What Apache Kafka 4.3 answers."""
    topic: Mapping[str, str] = MappingProxyType({})


def _in_structure() -> Iterator[Case]:
    eleven = b"\xff" * 10 + b"\x01"
    five, six = b"\xff" * 4 + b"\x1f", b"\xff" * 5 + b"\x01"
    no_utf8 = record(1, headers=(((2, b"\xc3\x28"), (-1, b"")),))
    yield Case("three records, as they should be", sealed(GOOD), TAKEN, None, TAKEN)
    yield Case("a null key and a null value", middle(record(1, key=(-1, b""), value=(-1, b""))), TAKEN, None, TAKEN)
    yield Case("a number with more bytes than it needs", middle(record(b"\x82\x00")), TAKEN, None, TAKEN)
    yield Case("a bit of a record's attributes", middle(record(1, attributes=1)), TAKEN, None, TAKEN)
    yield Case("the highest bit of a record's attributes", middle(record(1, attributes=128)), INVALID, 1, TAKEN)
    yield Case("a length that leads into the next record", middle(record(1, longer=4)), INVALID, 1, INVALID)
    yield Case("a length that ends within the value", middle(record(1, longer=-3)), INVALID, 1, INVALID)
    yield Case("a length that leads out of the batch", middle(record(1, longer=500)), INVALID, 1, INVALID)
    yield Case("a negative length", middle(varint(-5) + record(1)[1:]), INVALID, 1, INVALID)
    yield Case("a length of zero", middle(varint(0) + record(1)[1:]), INVALID, 1, INVALID)
    yield Case("a length of six bytes", middle(six + record(1)[1:]), INVALID, 1, UNKNOWN)
    yield Case("a length of more than 32 bits", middle(five + record(1)[1:]), INVALID, 1, INVALID)
    yield Case("bytes after a record's last header", middle(record(1, after=b"more")), INVALID, 1, INVALID)
    yield Case("a key that leads out of its record", middle(record(1, key=(60, b"key"))), INVALID, 1, INVALID)
    yield Case("a value that leads out of its record", middle(record(1, value=(2**30, b"v"))), INVALID, 1, INVALID)
    yield Case("a key's length of -2", middle(record(1, key=(-2, b""))), INVALID, 1, TAKEN)
    yield Case("a value's length of -2", middle(record(1, value=(-2, b""))), INVALID, 1, TAKEN)
    yield Case("more headers than bytes", middle(record(1, header_count=1000)), INVALID, 1, INVALID)
    yield Case("one header counted, none there", middle(record(1, header_count=1)), INVALID, 1, INVALID)
    yield Case("a negative number of headers", middle(record(1, header_count=-1)), INVALID, 1, INVALID)
    yield Case("a header without a key", middle(record(1, headers=(((-1, b""), (1, b"v")),))), INVALID, 1, INVALID)
    yield Case("a header's key that is not UTF-8", middle(no_utf8), INVALID, 1, TAKEN)
    yield Case("a header that leads out", middle(record(1, headers=(((1, b"n"), (99, b"v")),))), INVALID, 1, INVALID)
    yield Case("a time of eleven bytes", middle(record(1, time=eleven)), INVALID, 1, INVALID)


def _in_counts() -> Iterator[Case]:
    yield Case("offset deltas 0, 0, 2", middle(record(0)), INVALID, 1, TAKEN)
    yield Case("offset deltas 0, 2, 1", sealed(record(0) + record(2) + record(1)), INVALID, 1, TAKEN)
    yield Case("offset deltas 1, 2, 3", sealed(record(1) + record(2) + record(3)), INVALID, 0, TAKEN)
    yield Case("offset deltas 0, -1, 2", middle(record(-1)), INVALID, 1, TAKEN)
    yield Case("four records, three counted", sealed(GOOD + record(3)), INVALID, 3, INVALID)
    yield Case("three records, four counted", sealed(GOOD, 4), INVALID, 3, INVALID)
    yield Case("bytes after the last record", sealed(GOOD + b"more"), INVALID, 3, INVALID)
    yield Case("no record, three counted", sealed(b""), INVALID, 0, INVALID)
    yield Case("no record, none counted", sealed(b"", 0), INVALID, None, INVALID)
    yield Case("three records, none counted", sealed(GOOD, 0, last=2), INVALID, None, INVALID)
    yield Case("three records, three counted, for two offsets", sealed(GOOD, 3, last=1), INVALID, None, INVALID)


def _in_times() -> Iterator[Case]:
    late, least = NOW * 2, -(2**63)
    yield Case("a header whose latest time is too high", sealed(GOOD, max_time=NOW + 5), TAKEN, None, TAKEN)
    yield Case("a header whose latest time is too low", sealed(GOOD, max_time=-1), TAKEN, None, TAKEN)
    yield Case("a header whose latest time is far ahead", sealed(GOOD, max_time=late), TAKEN, None, TAKEN)
    yield Case("a time before the batch's first", middle(record(1, time=-5)), TAKEN, None, TAKEN)
    yield Case("a time too far ahead", middle(record(1, time=late), max_time=NOW + late), TIME, 1, TIME)
    yield Case("a time too far ahead, not in the header", middle(record(1, time=late)), TIME, 1, TIME)
    yield Case("a time too far back", middle(record(1, time=-1_200_000_000_000)), TIME, 1, TIME, THIRTY_YEARS)
    yield Case("a time of more than 64 bits", middle(record(1, time=2**63 - 1)), TIME, 1, TIME)
    yield Case("a time below -2^63", middle(record(1, time=least), base_time=-5), TIME, 1, TIME)
    yield Case("a batch marked LogAppendTime", sealed(GOOD, attributes=LOG_APPEND_TIME), TIME, None, TAKEN)


def _in_compressed() -> Iterator[Case]:
    bad, same = record(0) + record(1, longer=4) + record(2), record(0) + record(0) + record(2)
    yield Case("gzip: three records", packed(1, GOOD), TAKEN, None, TAKEN)
    yield Case("gzip: a length that leads into the next record", packed(1, bad), TAKEN, None, TAKEN)
    yield Case("gzip: offset deltas 0, 0, 2", packed(1, same), TAKEN, None, UNKNOWN)
    yield Case("gzip, compacted: three records", packed(1, GOOD), TAKEN, None, TAKEN, COMPACTED)
    yield Case("gzip, compacted: a length that leads on", packed(1, bad), INVALID, 1, TAKEN, COMPACTED)
    yield Case("gzip, compacted: offset deltas 0, 0, 2", packed(1, same), INVALID, 1, UNKNOWN, COMPACTED)
    for codec in range(1, 5):
        name, snappy = compression.NAMES[codec], codec == compression.SNAPPY
        zstd = codec == compression.ZSTD
        cut = bytes(compression.compress(codec, GOOD))[:-6]
        closed = sealed(GOOD, codec=codec)
        yield Case(f"{name}: not compressed", closed, TAKEN if snappy else INVALID, None, UNKNOWN)
        yield Case(f"{name}: no bytes", sealed(b"", codec=codec), INVALID, None, INVALID if zstd else UNKNOWN)
        yield Case(f"{name}: cut short", sealed(cut, codec=codec), TAKEN, None, UNKNOWN)
        yield Case(f"{name}, compacted: cut short", sealed(cut, codec=codec), INVALID, None, UNKNOWN, COMPACTED)


CASES = [*_in_structure(), *_in_counts(), *_in_times(), *_in_compressed()]
