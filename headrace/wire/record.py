"""One decoded record, independent of how it is encoded in a batch.

`offset` is absolute, times are milliseconds since 1970, a None value is a tombstone. Both record codecs (compiled and
pure Python) return and accept this type, so it has a module of its own.
"""

from __future__ import annotations

from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
