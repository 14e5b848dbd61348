"""A lake as a table of Delta or Iceberg: the same Parquet files under the table format's own metadata.

The interface that delta.py and iceberg.py fulfil, and the roll forward. The manifest decides what is in the lake; a
table follows it, commit by commit, and remembers in its own metadata which commit it has reached. So a crash between
the two leaves the table behind, never ahead, and `catch_up` brings it on when the pipeline starts again. Invariant: a
commit of the manifest becomes one commit of the table, once.
"""

from __future__ import annotations

from typing import Protocol

from headrace.spark.lake.lake import Lake
from headrace.spark.lake.manifest import Commit


class Table(Protocol):
    def reached(self) -> int:
        """The number of the last commit that the table has taken in; 0 for none, and for a table not made yet."""
        ...

    def take_in(self, commit: Commit) -> None:
        """Make one commit of the table out of one of the manifest."""
        ...


def catch_up(lake: Lake, table: Table) -> int:
    """Take in every commit that the table lacks; how many there were."""
    lacking = range(table.reached() + 1, lake.contents.number + 1)
    for number in lacking:
        table.take_in(lake.read_commit(number))
    return len(lacking)
