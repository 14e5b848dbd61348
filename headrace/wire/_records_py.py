"""The records inside a batch, uncompressed, in pure Python: the twin of _records.pyx, function by function.

Used if there is no C compiler, and the specification of the compiled twin: a test gives both the same bytes. Called by
wire/records.py, which picks one of the two.

A record is: length, attributes (1 byte), timestamp delta, offset delta, key length, key, value length, value, number
of headers, and for each header its key's length, key, value's length, value. Numbers are zigzag varints of at most 32
bits, the timestamp delta has 64; a length below zero means null. Invariants: every length is checked against the bytes
that are left, records fill the section exactly, and bad bytes raise only Malformed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.wire.errors import BadRecord, Malformed
from headrace.wire.record import Record

Buffer = bytes | bytearray | memoryview

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_INT64_MIN = -(2**63)
_SMALLEST_RECORD_BYTES = 7
_MOST_PLACES = 1000  # of records that are wrong: so many are told


def _varint(data: memoryview, at: int, bits: int = 32) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise Malformed("a record is truncated")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise Malformed(f"a number in a record needs more than {bits} bits")
    if value >> bits:
        raise Malformed(f"a number in a record needs more than {bits} bits")
    return (value >> 1) ^ -(value & 1), at


def _put_varint(out: bytearray, value: int) -> None:
    value = value << 1 if value >= 0 else (~value << 1) | 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _blob(data: memoryview, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    if size < 0:
        return None, at
    if size > len(data) - at:
        raise Malformed(f"a field of a record has {size} bytes, but {len(data) - at} are left")
    return bytes(data[at : at + size]), at + size


def _skip(data: memoryview, at: int) -> tuple[bool, int]:
    """Skips a key or value; False if it is null."""
    size, at = _varint(data, at)
    if size < 0:
        return False, at
    if size > len(data) - at:
        raise Malformed(f"a field of a record has {size} bytes, but {len(data) - at} are left")
    return True, at + size


def _frame(data: memoryview, at: int) -> tuple[memoryview, int, int]:
    """The record at `at`: (data up to its end, position of its timestamp, its end)."""
    size, at = _varint(data, at)
    if size < _SMALLEST_RECORD_BYTES - 1 or size > len(data) - at:
        raise Malformed(f"a record has {size} bytes, but {len(data) - at} are left")
    return data[: at + size], at + 1, at + size


def _check_count(data: memoryview, count: int) -> None:
    if count < 0 or count > len(data) // _SMALLEST_RECORD_BYTES:
        raise Malformed(f"{count} records in {len(data)} bytes")


def _check_end(data: memoryview, at: int) -> None:
    if at != len(data):
        raise Malformed(f"{len(data) - at} bytes after the last record of a batch")


def _offset(base_offset: int, delta: int, last_offset_delta: int) -> int:
    if delta < 0 or delta > last_offset_delta:
        raise Malformed(f"a record with offset delta {delta} in a batch that ends at {last_offset_delta}")
    if base_offset + delta > _INT64_MAX:
        raise Malformed("a record's offset needs more than 64 bits")
    return base_offset + delta


def _time(base_timestamp: int, delta: int) -> int:
    timestamp = base_timestamp + delta
    if timestamp < _INT64_MIN or timestamp > _INT64_MAX:
        raise Malformed("a record's timestamp needs more than 64 bits")
    return timestamp


def decode_records(
    section: Buffer,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    *,
    append_time: int | None,
) -> list[Record]:
    """All records; `append_time`, if given, is the timestamp of each."""
    records = []
    for found in each_record(section, count, base_offset, last_offset_delta, base_timestamp, append_time):
        headers, at = _headers(found.body, found.headers_at)
        if at != found.end:
            raise Malformed("a record is longer than its fields")
        records.append(Record(found.offset, found.timestamp, found.key, found.value, headers))
    return records


class Found(NamedTuple):
    """A record whose headers have not been read yet."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    body: memoryview
    headers_at: int
    end: int


def each_record(
    section: Buffer,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    append_time: int | None,
) -> Iterator[Found]:
    data = memoryview(section)
    _check_count(data, count)
    at = 0
    for _ in range(count):
        body, at, end = _frame(data, at)
        time_delta, at = _varint(body, at, 64)
        offset_delta, at = _varint(body, at)
        key, at = _blob(body, at)
        value, at = _blob(body, at)
        offset = _offset(base_offset, offset_delta, last_offset_delta)
        timestamp = _time(base_timestamp, time_delta) if append_time is None else append_time
        yield Found(offset, timestamp, key, value, body, at, end)
        at = end
    _check_end(data, at)


def _headers(body: memoryview, at: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, at = _varint(body, at)
    if count == 0:
        return (), at
    if count < 0 or count > (len(body) - at) // 2:
        raise Malformed(f"a record claims {count} headers in {len(body) - at} bytes")
    headers = []
    for _ in range(count):
        name, at = _blob(body, at)
        value, at = _blob(body, at)
        if name is None:
            raise Malformed("a record header without a key")
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError as error:
            raise Malformed("a record header's key is not UTF-8") from error
    return tuple(headers), at


def encode_records(records: Sequence[Record], base_offset: int, base_timestamp: int) -> bytearray:
    out = bytearray()
    for offset, timestamp, key, value, headers in records:
        if not _INT64_MIN <= timestamp - base_timestamp <= _INT64_MAX:
            raise ValueError(f"timestamp {timestamp} does not fit a batch that starts at {base_timestamp}")
        if not 0 <= offset - base_offset <= _INT32_MAX:
            raise ValueError(f"offset {offset} does not fit a batch that starts at {base_offset}")
        body = bytearray(1)
        _put_varint(body, timestamp - base_timestamp)
        _put_varint(body, offset - base_offset)
        _put_blob(body, key)
        _put_blob(body, value)
        _put_varint(body, len(headers))
        for name, content in headers:
            _put_blob(body, name.encode())
            _put_blob(body, content)
        _put_varint(out, len(body))
        out += body
    return out


def _put_blob(out: bytearray, blob: bytes | None) -> None:
    if blob is None:
        out.append(1)
    else:
        _put_varint(out, len(blob))
        out += blob


def scan_keys(
    section: Buffer, count: int, base_offset: int, last_offset_delta: int
) -> list[tuple[int, bytes | None, bool]]:
    """(offset, key, whether it has a value) of every record; the headers are not read."""
    data = memoryview(section)
    _check_count(data, count)
    found = []
    at = 0
    for _ in range(count):
        body, at, end = _frame(data, at)
        _, at = _varint(body, at, 64)
        offset_delta, at = _varint(body, at)
        key, at = _blob(body, at)
        has_value, _ = _skip(body, at)
        found.append((_offset(base_offset, offset_delta, last_offset_delta), key, has_value))
        at = end
    _check_end(data, at)
    return found


def first_dated(
    section: Buffer,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    timestamp: int,
    from_offset: int,
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record from `from_offset` on that is as late as `timestamp`, or None."""
    found = None
    for offset, time in _dated(section, count, base_offset, last_offset_delta, base_timestamp):
        if found is None and offset >= from_offset and time >= timestamp:
            found = offset, time
    return found


def last_and_latest(
    section: Buffer, count: int, base_offset: int, last_offset_delta: int, base_timestamp: int
) -> tuple[int, int]:
    """The offset of the last record, and the latest timestamp of all; of one record at least."""
    last, latest = -1, _INT64_MIN
    for offset, time in _dated(section, count, base_offset, last_offset_delta, base_timestamp):
        last, latest = offset, max(latest, time)
    if count == 0:
        raise Malformed("a batch without a record has no last one")
    return last, latest


def _dated(
    section: Buffer, count: int, base_offset: int, last_offset_delta: int, base_timestamp: int
) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of every record; nothing else is read."""
    data = memoryview(section)
    _check_count(data, count)
    at = 0
    for _ in range(count):
        body, at, end = _frame(data, at)
        time_delta, at = _varint(body, at, 64)
        time = _time(base_timestamp, time_delta)
        offset_delta, _ = _varint(body, at)
        yield _offset(base_offset, offset_delta, last_offset_delta), time
        at = end
    _check_end(data, at)


def check_records(section: Buffer, count: int, base_timestamp: int) -> tuple[int, int]:
    """(earliest, latest) time of the records, if they are what a client may send; else BadRecord. A time may need more
    than 64 bits.

    Beside what every reader checks, a client's records have the offset deltas 0, 1, 2 ..., and names of headers that
    are UTF-8."""
    data = memoryview(section)
    deltas = []
    at = place = 0
    why = "it is missing"
    try:
        _require(count > 0)
        for place in range(count):
            why = "it is missing"
            _require(at < len(data))
            why = "its length leads out of the batch"
            size, at = _varint(data, at)
            _require(0 <= size <= len(data) - at)
            why = "it is empty"
            _require(size > 0)
            at += size
            why = "its attributes are none"
            _require(data[at - size] < 0x80)  # no bit has a meaning; kafka-python and aiokafka read a varint here
            deltas.append(_check_record(place, data[at - size + 1 : at]))
    except BadRecord:
        raise
    except Malformed as error:
        raise BadRecord(place, why) from error
    if at != len(data):
        raise BadRecord(count, "bytes follow the last record")
    return base_timestamp + min(deltas), base_timestamp + max(deltas)


def _check_record(place: int, body: memoryview) -> int:
    """The time delta of the record whose fields, after its attributes, are these bytes."""
    why = "its time is no number"
    try:
        delta, at = _varint(body, 0, 64)
        why = "its offset does not follow the one before"
        offset, at = _varint(body, at)
        _require(offset == place)
        why = "its key leads out of it"
        at = _check_field(body, at, -1)
        why = "its value leads out of it"
        at = _check_field(body, at, -1)
        why = "it claims more headers than it holds"
        headers, at = _varint(body, at)
        _require(0 <= headers <= (len(body) - at) // 2)
        why = "a header leads out of it or has no key in UTF-8"
        for _ in range(headers):
            start, at = at, _check_field(body, at, 0)
            (_blob(body, start)[0] or b"").decode()
            at = _check_field(body, at, -1)
        why = "it is longer than its fields"
        _require(at == len(body))
    except (Malformed, UnicodeDecodeError) as error:
        raise BadRecord(place, why) from error
    return delta


def _check_field(body: memoryview, at: int, least: int) -> int:
    """The end of the field at `at`, whose length may not be less than that."""
    size, at = _varint(body, at)
    _require(least <= size <= len(body) - at)
    return at + max(size, 0)


def _require(held: bool) -> None:
    if not held:
        raise Malformed


def times_outside(section: Buffer, count: int, base_timestamp: int, earliest: int, latest: int) -> list[int]:
    """The places of records whose time is there (not -1) and not in [earliest, latest]; the first thousand."""
    data = memoryview(section)
    _check_count(data, count)
    found = []
    at = 0
    for place in range(count):
        body, at, end = _frame(data, at)
        time = base_timestamp + _varint(body, at, 64)[0]
        if time != -1 and not max(earliest, _INT64_MIN) <= time <= min(latest, _INT64_MAX):
            found.append(place)
            if len(found) == _MOST_PLACES:
                break
        at = end
    return found


def keyless(section: Buffer, count: int) -> list[int]:
    """The places of records without a key; the first thousand."""
    data = memoryview(section)
    _check_count(data, count)
    found = []
    at = 0
    for place in range(count):
        body, at, end = _frame(data, at)
        _, at = _varint(body, at, 64)
        _, at = _varint(body, at)
        if not _skip(body, at)[0]:
            found.append(place)
            if len(found) == _MOST_PLACES:
                break
        at = end
    return found


def scan_headers(section: Buffer, count: int, names: tuple[bytes, ...]) -> list[list[bytes | None]]:
    """For each of these names the value of each record's first header with that name; None if there is none."""
    data = memoryview(section)
    _check_count(data, count)
    found: list[list[bytes | None]] = [[] for _ in names]
    at = 0
    for _ in range(count):
        body, at, end = _frame(data, at)
        _, at = _varint(body, at, 64)
        _, at = _varint(body, at)
        _, at = _skip(body, at)
        _, at = _skip(body, at)
        first = _first_headers(body, at, names)
        for name, values in zip(names, found, strict=True):
            values.append(first.get(name))
        at = end
    _check_end(data, at)
    return found


def _first_headers(body: memoryview, at: int, names: tuple[bytes, ...]) -> dict[bytes, bytes | None]:
    count, at = _varint(body, at)
    if count < 0 or count > (len(body) - at) // 2:
        raise Malformed(f"a record claims {count} headers in {len(body) - at} bytes")
    first: dict[bytes, bytes | None] = {}
    for _ in range(count):
        if len(first) == len(names):
            break
        name, at = _blob(body, at)
        if name is None:
            raise Malformed("a record header without a key")
        if name in names and name not in first:
            first[name], at = _blob(body, at)
        else:
            _, at = _skip(body, at)
    return first


def filter_records(section: Buffer, keep: Sequence[bool], timestamp_shift: int) -> bytearray:
    """The records for which `keep` is true; `timestamp_shift` is added to their timestamp deltas."""
    data = memoryview(section)
    _check_count(data, len(keep))
    out = bytearray()
    at = 0
    for wanted in keep:
        start = at
        body, at, end = _frame(data, at)
        if wanted and timestamp_shift == 0:
            out += body[start:end]
        elif wanted:
            time_delta, rest = _varint(body, at, 64)
            moved = bytearray(body[at - 1 : at])
            _put_varint(moved, _time(time_delta, timestamp_shift))
            _put_varint(out, len(moved) + end - rest)
            out += moved
            out += body[rest:end]
        at = end
    _check_end(data, at)
    return out
