"""Columns of rows that are to be written, as buffers in Arrow's layout. No Arrow library is needed to hold them.

Made by whoever has Arrow arrays (spark/sink/rows.py), taken by arrow_encode.py and its two twins. Numbers are
little-endian, as Arrow has them on every machine that it runs on here; a bitmap has its first row in the lowest bit;
`first` is the row of the buffers with which the column begins, so a slice of an array needs no copy.

Buffers stay what they are for as long as a column is in use: nobody writes into them.
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
    """A whole number of 32 bits, or null, for each row."""

    rows: int
    data: Buffer
    valid: Buffer | None = None
    first: int = 0


class HeaderLists(NamedTuple):
    """Any number of headers for each row; null is none."""

    rows: int
    offsets: Buffer  # 32 bits each, into `names` and `contents`
    names: Blobs
    contents: Blobs
    valid: Buffer | None = None
    first: int = 0


class Rows(NamedTuple):
    """What becomes records, row by row. `times` are milliseconds, 64 bits each, from its first byte on."""

    rows: int
    times: Buffer
    keys: Blobs | None = None
    values: Blobs | None = None
    headers: tuple[HeaderLists, ...] = ()  # a record has those of all of them, one after the other
    marks: tuple[tuple[bytes, Blobs], ...] = ()  # further headers, each with one name; null is no such header
