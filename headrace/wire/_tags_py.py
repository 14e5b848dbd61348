"""Filtering the records of a batch by their tags, in pure Python: the twin of _tags.pyx, function by function.

A record's tags are the values of its headers of one name; a header without a value is no tag. Matches are numbered as
in `tags.py`: 0 any, 1 all, 2 none of the wanted tags. The kept records are copied as they are, so their offsets and
times stay right in a batch that keeps its base offset and base timestamp.
"""

from __future__ import annotations

from headrace.wire._records_py import _blob as blob
from headrace.wire._records_py import _check_count as check_count
from headrace.wire._records_py import _check_end as check_end
from headrace.wire._records_py import _frame as frame
from headrace.wire._records_py import _skip as skip
from headrace.wire._records_py import _varint as varint
from headrace.wire.batches import Buffer
from headrace.wire.errors import Malformed

_MOST_TAGS = 64
_MOST_WANTED = 64


def filter_tagged(
    section: Buffer, count: int, name: bytes, wanted: tuple[bytes, ...], match: int
) -> tuple[int, Buffer | None, int, list[bytes] | None, bool]:
    """The records whose tags match: (how many, their bytes, their latest time delta, all tags, whether some record has
    none). The tags are None if they are too many to be told. If all records match, their bytes are None."""
    data = memoryview(section)
    check_count(data, count)
    if len(wanted) > _MOST_WANTED:
        raise ValueError(f"{len(wanted)} tags are wanted, at most {_MOST_WANTED} can be")
    if count == 0 and not data:
        return 0, b"", 0, [], False
    seen, every = dict[bytes, None](), set(wanted)
    at, kept, latest, untagged, out = 0, 0, -(2**63), False, bytearray()
    for _ in range(count):
        start = at
        body, moved, at = frame(data, at)
        delta, moved = varint(body, moved, 64)
        _, moved = varint(body, moved)
        _, moved = skip(body, moved)
        _, moved = skip(body, moved)
        tags = _tags(body, moved, name)
        untagged = untagged or not tags
        seen |= dict.fromkeys(tags)
        found = every.intersection(tags)
        if (bool(found), found == every, not found)[match]:
            out += data[start:at]
            kept += 1
            latest = max(latest, delta)
    check_end(data, at)
    tags_seen = None if len(seen) > _MOST_TAGS else list(seen)
    return kept, None if kept == count else out, latest, tags_seen, untagged


def _tags(body: memoryview, at: int, name: bytes) -> list[bytes]:
    count, at = varint(body, at)
    if count < 0 or count > (len(body) - at) // 2:
        raise Malformed(f"a record claims {count} headers in {len(body) - at} bytes")
    tags = []
    for _ in range(count):
        key, at = blob(body, at)
        if key is None:
            raise Malformed("a record header without a key")
        value, at = blob(body, at)
        if key == name and value is not None:
            tags.append(value)
    if at != len(body):
        raise Malformed("a record is longer than its fields")
    return tags
