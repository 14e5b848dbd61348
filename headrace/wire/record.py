"""One record as people and programs see it, apart from how it lies in a batch.

`offset` is absolute, times are milliseconds since 1970, a None value is a tombstone. Both record codecs (compiled and
pure Python) make and take these, so the type stands on its own.
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
