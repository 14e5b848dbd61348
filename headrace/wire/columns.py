"""Records laid out as columns, ready for Arrow: from opened batches to the buffers of a table, with no object per row.

Called by the Spark source's executors. Compiled code does the work where it could be built, its pure-Python twin
elsewhere; both give the same answers. Which batches of a partition may be seen at all (transactions, control batches)
is the caller's affair.

Buffers are laid out as Arrow wants them: little-endian numbers; byte strings as 32-bit ends, data and a bitmap of those
that are not null, least significant bit first; headers as a list of (name, value). Timestamps are microseconds, held to
the years 1 to 9999, since that is what Spark and Python know.

Invariant: bad bytes raise Malformed and nothing else.
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
MAX_BYTES = 2**31 - 1  # of all byte strings of a column: their ends are 32-bit numbers
FIRST_OFFSET, LAST_OFFSET = 0, 2**63 - 1


class Column(IntFlag):
    KEY = spec.KEY
    VALUE = spec.VALUE
    OFFSET = spec.OFFSET
    TIMESTAMP = spec.TIMESTAMP
    TIMESTAMP_TYPE = spec.TIMESTAMP_TYPE
    HEADERS = spec.HEADERS


class Section(NamedTuple):
    """The records of a batch, opened, and what of the batch's header they need."""

    data: Buffer
    record_count: int
    base_offset: int
    last_offset_delta: int
    base_timestamp: int
    append_time: int | None  # the time of every record, if the broker gave it


class Blobs(NamedTuple):
    """A column of byte strings."""

    ends: bytearray
    data: bytearray
    validity: bytearray | None  # None: nothing is null
    nulls: int


class Columns(NamedTuple):
    """The columns that were asked for; the others are None."""

    rows: int
    offsets: bytearray | None
    timestamps: bytearray | None
    timestamp_types: bytearray | None  # 0: the producer's time, 1: the broker's
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
    """Header names are text. Where not all of it is ASCII, each must be text by itself, not only all together."""
    if names.data.isascii():
        return
    ends = memoryview(names.ends).cast("i")
    try:
        for start, end in pairwise(ends):
            names.data[start:end].decode()
    except UnicodeDecodeError as error:
        raise Malformed("a record header's key is not UTF-8") from error
