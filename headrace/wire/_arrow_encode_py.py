"""Encodes rows in columns as records, in pure Python: the twin of _arrow_encode.pyx, function by function.

Used if there is no C compiler, and the specification of the compiled twin: a test gives both the same rows. Called by
wire/arrow_encode.py, which picks one of the two.

Each row gets a slot: a number for the topic and partition that it goes to. Rows are sorted by slot; then each slot's
rows are appended to the records section of a batch until that is full. Inconsistent columns (offsets outside their
buffers) raise ValueError, and so does a header without a name.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence

from headrace.wire._records_py import _put_blob, _put_varint
from headrace.wire.partitioning import partition_for_key
from headrace.wire.row_columns import Blobs, Buffer, HeaderLists, Numbers, Rows

_INT64_MAX = 2**63 - 1
_INT64_MIN = -(2**63)


def assign_slots(
    rows: int,
    keys: Blobs | None,
    partitions: Numbers | None,
    topics: Numbers | None,
    firsts: Sequence[int],
    counts: Sequence[int],
    sticky: Sequence[int],
) -> bytearray:
    """The slot of every row, 32 bits each: the first slot of its topic plus its partition.

    The partition is the one given in the row, else that of its key, else the topic's `sticky` partition. Topics are
    numbers; without a column of topics there is only topic 0.
    """
    _check_blobs(keys, rows)
    _check_numbers(partitions, rows)
    _check_numbers(topics, rows)
    if min(counts, default=1) < 1:
        raise ValueError("a topic without partitions")
    slots = array("i", bytes(4 * rows))
    for row in range(rows):
        topic = 0 if topics is None else _number(topics, row)
        if topic is None or not 0 <= topic < len(counts):
            raise ValueError(f"row {row} has no topic")
        partition = None if partitions is None else _number(partitions, row)
        if partition is None:
            key = None if keys is None else _blob(keys, row)
            partition = sticky[topic] if key is None else partition_for_key(key, counts[topic])
        elif not 0 <= partition < counts[topic]:
            raise ValueError(f"row {row} asks for partition {partition} of {counts[topic]}")
        slots[row] = firsts[topic] + partition
    return bytearray(slots.tobytes())


def order_by_slot(slots: Buffer, slot_count: int) -> tuple[bytearray, list[int]]:
    """Row numbers, 32 bits each, sorted by slot (stable); and for each slot the position of its first row in them, then
    the total."""
    numbers = _int32s(slots)
    bounds = [0] * (slot_count + 1)
    for slot in numbers:
        if not 0 <= slot < slot_count:
            raise ValueError(f"slot {slot} of {slot_count}")
        bounds[slot + 1] += 1
    for slot in range(slot_count):
        bounds[slot + 1] += bounds[slot]
    order = sorted(range(len(numbers)), key=numbers.__getitem__)
    return bytearray(array("i", order).tobytes()), bounds


def append_rows(
    section: bytearray,
    rows: Rows,
    order: Buffer,
    start: int,
    stop: int,
    delta: int,
    base_timestamp: int,
    limit_bytes: int,
) -> tuple[int, int]:
    """Append the rows order[start:stop] to the records of a batch; the first has offset delta `delta`. Stops before the
    row that would make the batch longer than `limit_bytes`, unless it is the batch's first.

    Returns how many rows were added, and their latest timestamp.
    """
    _check_rows(rows)
    numbers = _int32s(order)
    if not 0 <= start <= stop <= len(numbers):
        raise ValueError(f"rows {start} to {stop} of {len(numbers)}")
    latest = _INT64_MIN
    fresh = bytearray()  # if a row is rejected, the section stays unchanged
    added = 0
    for turn in range(start, stop):
        row = numbers[turn]
        if not 0 <= row < rows.rows:
            raise ValueError(f"row {row} of {rows.rows}")
        (timestamp,) = struct.unpack_from("<q", rows.times, 8 * row)
        if not _INT64_MIN <= timestamp - base_timestamp <= _INT64_MAX:
            raise ValueError(f"timestamp {timestamp} does not fit a batch that starts at {base_timestamp}")
        body = _body(rows, row, timestamp - base_timestamp, delta + turn - start)
        record = bytearray()
        _put_varint(record, len(body))
        record += body
        if delta + added and len(section) + len(fresh) + len(record) > limit_bytes:
            break
        fresh += record
        latest = max(latest, timestamp)
        added += 1
    section += fresh
    return added, latest


def _body(rows: Rows, row: int, time_delta: int, offset_delta: int) -> bytearray:
    body = bytearray(1)
    _put_varint(body, time_delta)
    _put_varint(body, offset_delta)
    _put_blob(body, None if rows.keys is None else _blob(rows.keys, row))
    _put_blob(body, None if rows.values is None else _blob(rows.values, row))
    headers = [header for lists in rows.headers for header in _headers(lists, row)]
    for name, column in rows.marks:
        content = _blob(column, row)
        if content is not None:
            headers.append((name, content))
    _put_varint(body, len(headers))
    for name, value in headers:
        _put_blob(body, name)
        _put_blob(body, value)
    return body


def _headers(lists: HeaderLists, row: int) -> list[tuple[bytes, bytes | None]]:
    at = lists.first + row
    if not _is_valid(lists.valid, at):
        return []
    low, high = struct.unpack_from("<ii", lists.offsets, 4 * at)
    if not 0 <= low <= high <= min(lists.names.rows, lists.contents.rows):
        raise ValueError(f"row {row} has headers {low} to {high} of {min(lists.names.rows, lists.contents.rows)}")
    found: list[tuple[bytes, bytes | None]] = []
    for child in range(low, high):
        name = _blob(lists.names, child)
        if name is None:
            raise ValueError(f"row {row} has a header without a key")
        found.append((name, _blob(lists.contents, child)))
    return found


def _check_rows(rows: Rows) -> None:
    _check_buffer(rows.times, 8 * rows.rows)
    columns = [rows.keys, rows.values, *(column for _, column in rows.marks)]
    for lists in rows.headers:
        _check_blobs(lists.names, 0)
        _check_blobs(lists.contents, 0)
        columns.append(Blobs(lists.rows, lists.offsets, b"", lists.valid, lists.first))
    for column in columns:
        _check_blobs(column, rows.rows)


def _check_blobs(column: Blobs | None, rows: int) -> None:
    if column is not None:
        _check_column(column, rows)
        _check_buffer(column.offsets, 4 * (column.first + column.rows + 1))


def _check_numbers(column: Numbers | None, rows: int) -> None:
    if column is not None:
        _check_column(column, rows)
        _check_buffer(column.data, 4 * (column.first + column.rows))


def _check_column(column: Blobs | Numbers, rows: int) -> None:
    if column.rows < rows or column.first < 0:
        raise ValueError(f"a column has {column.rows} rows from {column.first} on, but there are {rows}")
    if column.valid is not None:
        _check_buffer(column.valid, (column.first + column.rows + 7) // 8)


def _check_buffer(buffer: Buffer, needed: int) -> None:
    if len(buffer) < needed:
        raise ValueError(f"a column has {len(buffer)} bytes, but needs {needed}")


def _blob(column: Blobs, row: int) -> bytes | None:
    at = column.first + row
    if not _is_valid(column.valid, at):
        return None
    low, high = struct.unpack_from("<ii", column.offsets, 4 * at)
    if not 0 <= low <= high <= len(column.data):
        raise ValueError(f"row {row} has bytes {low} to {high} of {len(column.data)}")
    return bytes(memoryview(column.data)[low:high])


def _number(column: Numbers, row: int) -> int | None:
    at = column.first + row
    if not _is_valid(column.valid, at):
        return None
    number: int = struct.unpack_from("<i", column.data, 4 * at)[0]
    return number


def _is_valid(bitmap: Buffer | None, at: int) -> bool:
    return bitmap is None or bool(bitmap[at >> 3] >> (at & 7) & 1)


def _int32s(buffer: Buffer) -> memoryview:
    return memoryview(buffer).cast("B").cast("i")
