"""What an append tells whoever asked for it. Made by the log, passed on by replicas, put into replies by the API."""

from __future__ import annotations

from msgspec import Struct


class Appended(Struct, frozen=True):
    base_offset: int
    last_offset: int
    append_time_ms: int
    """When the broker took it, on topics with LogAppendTime; else -1."""
    log_start_offset: int
    duplicate: bool
    visible_bytes: int
    """How many bytes of records it has for consumers: none, if deduplication or delays have emptied all its batches."""
    written_from: int = -1
    """Where the log ended before, if not at the base offset: a note may have been written first (log/parking.py)."""

    @property
    def end_before(self) -> int:
        return self.base_offset if self.written_from < 0 else self.written_from
