"""Delta and Iceberg tables follow the manifest: each commit once, also after a crash between the two."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.model.failure import Failure
from headrace.spark.lake.compaction import rewrite, small_files
from headrace.spark.lake.delta import DeltaLake
from headrace.spark.lake.iceberg import IcebergLake
from headrace.spark.lake.lake import Lake
from headrace.spark.lake.tables import Table, catch_up
from headrace.world.entropy import SeededEntropy

from .records import TARGET_BYTES, append, every_minute, new_lake


def delta_rows(folder: Path) -> pa.Table:
    from deltalake import DeltaTable

    return DeltaTable(str(folder)).to_pyarrow_table()


def iceberg_rows(folder: Path) -> pa.Table:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("headrace", type="sql", uri=f"sqlite:///{folder}/catalog.db")
    return catalog.load_table("lake.records").scan().to_arrow()


KINDS: list[tuple[Callable[[Lake], Table], Callable[[Path], pa.Table]]] = [
    (DeltaLake, delta_rows),
    (lambda lake: IcebergLake(lake, "lake.records", {}), iceberg_rows),
]


@pytest.mark.parametrize(("make", "read"), KINDS, ids=["delta", "iceberg"])
def test_a_table_takes_in_each_commit_once_and_survives_compaction(
    make: Callable[[Lake], Table], read: Callable[[Path], pa.Table], tmp_path: Path
) -> None:
    lake = new_lake(tmp_path)
    append(lake, every_minute(0, 0, 90))
    assert catch_up(lake, make(lake)) == 1
    for first in range(90, 150, 10):  # the driver dies before the table hears of these
        append(lake, every_minute(0, first, first + 10))
    table = make(lake)
    assert table.reached() == 1
    assert catch_up(lake, table) == 6
    assert catch_up(lake, table) == 0
    groups = small_files(lake.contents.files.values(), 2, TARGET_BYTES)
    written = [file for group in groups for file in rewrite(lake.storage, group, SeededEntropy(1000), TARGET_BYTES)]
    lake.commit("compaction", written, [file for group in groups for file in group])
    assert catch_up(lake, make(lake)) == 1
    lake.delete_replaced(0)  # a table that still named a replaced file could not be read now
    rows = read(tmp_path)
    assert sorted(rows.column("offset").to_pylist()) == list(range(150))
    assert set(rows.column("topic").to_pylist()) == {"logs"}
    assert len(lake.contents.files) < 7


def test_an_iceberg_table_needs_a_namespace(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    with pytest.raises(Failure, match=r"write NAMESPACE\.TABLE"):
        IcebergLake(lake, "records", {}).reached()
