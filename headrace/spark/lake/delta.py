"""A lake as a Delta table, without jars: the driver writes Delta's log with the `deltalake` package.

Called by the archive pipeline through tables.py. The table is in the lake's folder. The number of the last manifest
commit that it has applied is an application transaction in Delta's log, written in the same Delta commit as the files.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.spark.lake.lake import Lake
from headrace.spark.lake.manifest import Commit, LakeFile
from headrace.spark.lake.rows import LAKE_SCHEMA

if TYPE_CHECKING:
    from deltalake import DeltaTable

APPLICATION = "headrace-archive"
PARTITION_COLUMNS = ["topic", "hour"]


class DeltaLake:
    def __init__(self, lake: Lake) -> None:
        self._address = lake.storage.uri("").rstrip("/")

    def reached(self) -> int:
        table = self._table()
        return 0 if table is None else table.transaction_version(APPLICATION) or 0

    def take_in(self, commit: Commit) -> None:
        from deltalake import CommitProperties, DeltaTable, Transaction
        from deltalake.transaction import AddAction, RemoveAction

        table = self._table()
        if table is None:
            table = DeltaTable.create(self._address, delta_schema(), partition_by=PARTITION_COLUMNS)
        moved = bool(commit.removed)  # a compaction only moves rows between files
        actions: list[Any] = [
            AddAction(file.name, file.size_bytes, partition_values(file), commit.written_ms, not moved, stats(file))
            for file in commit.added
        ]
        actions += [
            RemoveAction(file.name, False, commit.written_ms, file.size_bytes, partition_values(file))
            for file in commit.removed
        ]
        properties = CommitProperties(
            custom_metadata={"run": commit.run}, app_transactions=[Transaction(APPLICATION, commit.number)]
        )
        table.create_write_transaction(
            actions, "append", delta_schema(), PARTITION_COLUMNS, commit_properties=properties
        )

    def _table(self) -> DeltaTable | None:
        from deltalake import DeltaTable

        return DeltaTable(self._address) if DeltaTable.is_deltatable(self._address) else None


def delta_schema() -> Any:
    from deltalake import Schema

    return Schema.from_arrow(pa.schema(LAKE_SCHEMA))


def partition_values(file: LakeFile) -> dict[str, str | None]:
    return {"topic": file.topic, "hour": file.hour}


def stats(file: LakeFile) -> str:
    """Column statistics, by which Delta's readers skip files."""
    low = {"offset": min(span.start for span in file.spans), "timestamp": moment(file.first_ms)}
    high = {"offset": max(span.end for span in file.spans) - 1, "timestamp": moment(file.last_ms + 1)}
    return json.dumps({"numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": {"offset": 0}})


def moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
