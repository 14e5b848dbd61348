"""Decodes the records of opened batches into columns, in pure Python: the twin of _columns.pyx.

Used if there is no C compiler, and the specification of the compiled twin: a test gives both the same bytes. Called by
wire/columns.py, which picks one of the two and documents the layout. The fields of a record are checked in the order in
which they are encoded; headers are read only if they are a wanted column or if tags filter the records. Bad bytes raise
only Malformed.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from headrace.wire._records_py import Buffer, _blob, _varint, each_record
from headrace.wire.errors import Malformed

KEY, VALUE, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, HEADERS = 1, 2, 4, 8, 16, 32
TAG_HEADER = b"headrace.tag"
EARLIEST_MS, LATEST_MS = -62135596800000, 253402300799999  # the years 1 to 9999, the range of Spark's timestamps

Section = tuple[Buffer, int, int, int, int, int | None]
Header = tuple[bytes, bytes | None]


class _Blobs:
    """Concatenated byte strings: the end of each, and which are null."""

    def __init__(self) -> None:
        self.ends = array("i", [0])
        self.data = bytearray()
        self.valid: list[bool] = []

    def put(self, blob: bytes | None) -> None:
        self.data += blob or b""
        self.ends.append(len(self.data))
        self.valid.append(blob is not None)

    def taken(self) -> tuple[bytearray, bytearray, bytearray | None, int]:
        nulls = self.valid.count(False)
        bitmap = bytearray(b"\xff" * ((len(self.valid) + 7) // 8)) if nulls else None
        for place, valid in enumerate(self.valid):
            if bitmap is not None and not valid:
                bitmap[place // 8] &= ~(1 << place % 8)
        return bytearray(self.ends.tobytes()), self.data, bitmap, nulls


def fill(sections: Sequence[Section], wanted: int, first: int, stop: int, tags: Sequence[bytes]) -> tuple[Any, ...]:
    """The records with offsets from `first` to before `stop` and, if `tags` are given, one of these tags.

    A section is (bytes, record count, base offset, last offset delta, base timestamp, append time or None). Returns
    rows, offsets, timestamps in microseconds, timestamp types, keys, values, ends of the header lists, header names,
    header values. Blobs are (ends, data, validity bitmap or None, nulls); a column that is not wanted is None.
    """
    offsets, times, kinds = array("q"), array("q"), array("i")
    keys, values, names, contents = _Blobs(), _Blobs(), _Blobs(), _Blobs()
    list_ends = array("i", [0])
    rows = 0
    for section, count, base_offset, last_offset_delta, base_timestamp, append_time in sections:
        for found in each_record(section, count, base_offset, last_offset_delta, base_timestamp, append_time):
            headers = _headers(found.body, found.headers_at, found.end) if wanted & HEADERS or tags else []
            if not first <= found.offset < stop or (tags and not _has_tag(headers, tags)):
                continue
            rows += 1
            offsets.append(found.offset)
            times.append(min(max(found.timestamp, EARLIEST_MS), LATEST_MS) * 1000)
            kinds.append(0 if append_time is None else 1)
            keys.put(found.key)
            values.put(found.value)
            for name, content in headers:
                names.put(name)
                contents.put(content)
            list_ends.append(len(names.valid))
    return (
        rows,
        bytearray(offsets.tobytes()) if wanted & OFFSET else None,
        bytearray(times.tobytes()) if wanted & TIMESTAMP else None,
        bytearray(kinds.tobytes()) if wanted & TIMESTAMP_TYPE else None,
        keys.taken() if wanted & KEY else None,
        values.taken() if wanted & VALUE else None,
        bytearray(list_ends.tobytes()) if wanted & HEADERS else None,
        names.taken() if wanted & HEADERS else None,
        contents.taken() if wanted & HEADERS else None,
    )


def _headers(body: memoryview, at: int, end: int) -> list[Header]:
    count, at = _varint(body, at)
    if count < 0 or count > (len(body) - at) // 2:
        raise Malformed(f"a record claims {count} headers in {len(body) - at} bytes")
    found: list[Header] = []
    for _ in range(count):
        name, at = _blob(body, at)
        if name is None:
            raise Malformed("a record header without a key")
        content, at = _blob(body, at)
        found.append((name, content))
    if at != end:
        raise Malformed("a record is longer than its fields")
    return found


def _has_tag(headers: list[Header], tags: Sequence[bytes]) -> bool:
    return any(name == TAG_HEADER and content in tags for name, content in headers)
