"""Decodes opened batches into column buffers for Arrow, without a Python object per row.

Called by the Spark source's executors. The compiled twin does the work if it could be built, otherwise the pure-Python
twin; both return the same results. The caller decides which batches of a partition are visible at all (transactions,
control batches).

Buffers are in Arrow's layout: little-endian numbers; byte strings as 32-bit ends, data, and a validity bitmap, least
significant bit first; headers as a list of (name, value). Timestamps are microseconds, clamped to the years 1 to 9999,
the range of Spark and Python.

Invariant: bad bytes raise only Malformed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntFlag
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from headrace.wire import _columns_py as spec
from headrace.wire.batches import LOG_APPEND_TIME, BatchHeader, Buffer
from headrace.wire.errors import Malformed

if TYPE_CHECKING:
    from headrace.wire import _columns_py as twin
else:
    try:
        from headrace.wire import _columns as twin
    except ImportError:
        from headrace.wire import _columns_py as twin

COMPILED: bool = twin.__name__.endswith("._columns")
MAX_BYTES = 2**31 - 1  # of all byte strings of a column, since their ends are 32-bit numbers
FIRST_OFFSET, LAST_OFFSET = 0, 2**63 - 1


class Column(IntFlag):
    KEY = spec.KEY
    VALUE = spec.VALUE
    OFFSET = spec.OFFSET
    TIMESTAMP = spec.TIMESTAMP
    TIMESTAMP_TYPE = spec.TIMESTAMP_TYPE
    HEADERS = spec.HEADERS


class Section(NamedTuple):
    """The decompressed records of a batch, and the header fields that are needed to decode them."""

    data: Buffer
    record_count: int
    base_offset: int
    last_offset_delta: int
    base_timestamp: int
    append_time: int | None  # the timestamp of all records, if the broker set it (LogAppendTime)


class Blobs(NamedTuple):
    """A column of byte strings."""

    ends: bytearray
    data: bytearray
    validity: bytearray | None  # None: nothing is null
    nulls: int


class Columns(NamedTuple):
    """The requested columns; the others are None."""

    rows: int
    offsets: bytearray | None
    timestamps: bytearray | None
    timestamp_types: bytearray | None  # 0: set by the producer, 1: set by the broker
    keys: Blobs | None
    values: Blobs | None
    header_list_ends: bytearray | None
    header_names: Blobs | None
    header_values: Blobs | None


def section_of(header: BatchHeader, data: Buffer) -> Section:
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    return Section(
        data, header.record_count, header.base_offset, header.last_offset_delta, header.base_timestamp, append_time
    )


def read_columns(
    sections: Sequence[Section],
    wanted: Column,
    first: int = FIRST_OFFSET,
    stop: int = LAST_OFFSET,
    tags: Sequence[bytes] = (),
) -> Columns:
    """The records with offsets from `first` to before `stop` and, if `tags` are given, with one of these tags."""
    if sum(len(section.data) for section in sections) > MAX_BYTES:
        raise Malformed(f"record batches of more than {MAX_BYTES} bytes")
    rows, offsets, timestamps, types, keys, values, list_ends, names, contents = twin.fill(
        sections, wanted, first, stop, tags
    )
    header_names = _blobs(names)
    if header_names is not None:
        _check_names(header_names)
    return Columns(
        rows, offsets, timestamps, types, _blobs(keys), _blobs(values), list_ends, header_names, _blobs(contents)
    )


def _blobs(taken: tuple[bytearray, bytearray, bytearray | None, int] | None) -> Blobs | None:
    return None if taken is None else Blobs(*taken)


def _check_names(names: Blobs) -> None:
    """Header names are UTF-8. Unless all are ASCII, each is decoded alone: their concatenation may hide an error."""
    if names.data.isascii():
        return
    ends = memoryview(names.ends).cast("i")
    try:
        for start, end in pairwise(ends):
            names.data[start:end].decode()
    except UnicodeDecodeError as error:
        raise Malformed("a record header's key is not UTF-8") from error
