"""The sizes of the section "views". Pure data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ViewSizes:
    records: int = 2_000_000
    reads: int = 5
    pending: int = 1_000_000
    busy_per_second: int = 1000  # records, to each topic below the busy views
    pairs: int = 7
    produced: int = 3_000_000  # in each run of a pair
    fsync_seconds: float = 8.0  # of each run of a pair


QUICK_VIEWS = ViewSizes(
    records=40_000, reads=2, pending=20_000, busy_per_second=200, pairs=2, produced=300_000, fsync_seconds=2.0
)
