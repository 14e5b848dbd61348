"""A lake as a Delta or Iceberg table: the same Parquet files under the table format's own metadata.

The interface that delta.py and iceberg.py implement, and the roll forward. The manifest decides what is in the lake; a
table applies its commits one by one, and stores in its own metadata which commit it has reached. So after a crash the
table may be behind, never ahead, and `catch_up` applies the missing commits when the pipeline restarts. Invariant: each
commit of the manifest becomes exactly one commit of the table.
"""

from __future__ import annotations

from typing import Protocol

from headrace.spark.lake.lake import Lake
from headrace.spark.lake.manifest import Commit


class Table(Protocol):
    def reached(self) -> int:
        """The number of the last commit applied; 0 for none, and for a table that does not exist yet."""
        ...

    def take_in(self, commit: Commit) -> None:
        """Apply one commit of the manifest as one commit of the table."""
        ...


def catch_up(lake: Lake, table: Table) -> int:
    """Apply every commit that the table lacks, and return how many."""
    lacking = range(table.reached() + 1, lake.contents.number + 1)
    for number in lacking:
        table.take_in(lake.read_commit(number))
    return len(lacking)
