"""Finding records by the names of their headers, in pure Python: the twin of _record_headers.pyx."""

from __future__ import annotations

from headrace.wire._records_py import _blob, _check_count, _check_end, _frame, _skip, _varint
from headrace.wire.batches import Buffer
from headrace.wire.errors import Malformed

Marked = tuple[int, int, int, bytes | None, list[tuple[int, bytes | None]]]


def marked_records(section: Buffer, count: int, names: tuple[bytes, ...]) -> list[Marked]:
    """(place, where it begins and ends, key, [(which name, value)]) of each record that has a header with one of these
    names, which all begin with `headrace.`."""
    data = memoryview(section)
    _check_count(data, count)
    found: list[Marked] = []
    at = 0
    for place in range(count):
        first = at
        body, at, end = _frame(data, at)
        _, at = _varint(body, at, 64)
        _, at = _varint(body, at)
        key_at = at
        _, at = _skip(body, at)
        _, at = _skip(body, at)
        marks = _marks(body, at, names)
        if marks:
            found.append((place, first, end, _blob(body, key_at)[0], marks))
        at = end
    _check_end(data, at)
    return found


def _marks(body: memoryview, at: int, names: tuple[bytes, ...]) -> list[tuple[int, bytes | None]]:
    count, at = _varint(body, at)
    if count < 0 or count > (len(body) - at) // 2:
        raise Malformed(f"a record claims {count} headers in {len(body) - at} bytes")
    marks: list[tuple[int, bytes | None]] = []
    for _ in range(count):
        name, at = _blob(body, at)
        if name is None:
            raise Malformed("a record header without a key")
        if name in names:
            value, at = _blob(body, at)
            marks.append((names.index(name), value))
        else:
            _, at = _skip(body, at)
    return marks
