"""Rows to be encoded as records, held as column buffers in Arrow's layout. Needs no Arrow library.

Built from Arrow arrays by spark/sink/rows.py, and read by arrow_encode.py and its two twins. Numbers are little-endian,
as in Arrow; a bitmap has its first row in the lowest bit; `first` is the position of the column's first row in the
buffers, so a slice of an array needs no copy.

Invariant: nobody writes to a buffer while a column refers to it.
"""

from __future__ import annotations

from typing import NamedTuple

Buffer = bytes | bytearray | memoryview


class Blobs(NamedTuple):
    """Bytes or text, or null, for each row."""

    rows: int
    offsets: Buffer  # 32 bits each; a row's bytes lie between its offset and the next
    data: Buffer
    valid: Buffer | None = None  # a bitmap; None: no row is null
    first: int = 0


class Numbers(NamedTuple):
    """A 32-bit integer, or null, for each row."""

    rows: int
    data: Buffer
    valid: Buffer | None = None
    first: int = 0


class HeaderLists(NamedTuple):
    """A list of headers for each row; null means no headers."""

    rows: int
    offsets: Buffer  # 32 bits each, into `names` and `contents`
    names: Blobs
    contents: Blobs
    valid: Buffer | None = None
    first: int = 0


class Rows(NamedTuple):
    """The rows, each of which becomes a record. `times` are milliseconds, 64 bits each, starting at the first byte."""

    rows: int
    times: Buffer
    keys: Blobs | None = None
    values: Blobs | None = None
    headers: tuple[HeaderLists, ...] = ()  # a record gets the headers of each list, in this order
    marks: tuple[tuple[bytes, Blobs], ...] = ()  # (header name, its value for each row); null: no such header
