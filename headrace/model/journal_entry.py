"""One entry of a journal (the log of an internal topic), as it is read back.

Shared by replicas, which read the log, and coordinators, which build their state from it.
"""

from __future__ import annotations

from typing import NamedTuple

NO_PRODUCER_ID = -1


class JournalEntry(NamedTuple):
    """A record; or, without a key, the end of the transaction of `producer_id`."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    producer_id: int = NO_PRODUCER_ID  # of a record in a transaction
    commit: bool = False
