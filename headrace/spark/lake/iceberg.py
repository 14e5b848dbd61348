"""A lake as an Iceberg table, without jars: the driver commits snapshots with the `pyiceberg` package.

Called by the archive pipeline through tables.py. The catalog is an SQLite file in the lake's folder unless the
configuration names another. The number of the last manifest commit that the table has applied is a property of its
snapshots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.model.failure import Failure
from headrace.spark.lake.lake import Lake
from headrace.spark.lake.manifest import Commit, LakeFile
from headrace.spark.lake.rows import LAKE_SCHEMA

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

REACHED = "headrace.commit"


class IcebergLake:
    """`name` is namespace.table; `catalog` holds the properties of a catalog as pyiceberg names them."""

    def __init__(self, lake: Lake, name: str, catalog: dict[str, str]) -> None:
        self._storage = lake.storage
        self._name = name
        self._properties = catalog
        self._opened: Table | None = None

    def reached(self) -> int:
        for snapshot in reversed(self._table().metadata.snapshots):
            number = snapshot.summary.additional_properties.get(REACHED) if snapshot.summary else None
            if number is not None:
                return int(number)
        return 0

    def take_in(self, commit: Commit) -> None:
        from pyiceberg.io.pyarrow import parquet_files_to_data_files

        table = self._table()
        replaced = {self._uri(file) for file in commit.removed}
        properties = {REACHED: str(commit.number), "headrace.run": commit.run}
        with table.transaction() as transaction:
            if transaction.table_metadata.name_mapping() is None:  # the files have no Iceberg field ids: match by name
                mapping = table.metadata.schema().name_mapping.model_dump_json()
                transaction.set_properties({"schema.name-mapping.default": mapping})
            update = transaction.update_snapshot(snapshot_properties=properties)
            fresh = iter([self._uri(file) for file in commit.added])
            with update.overwrite() if replaced else update.fast_append() as snapshot:
                for file in parquet_files_to_data_files(table.io, transaction.table_metadata, fresh):
                    snapshot.append_data_file(file)
                for task in table.scan().plan_files() if replaced else ():
                    if task.file.file_path in replaced:
                        snapshot.delete_data_file(task.file)

    def _uri(self, file: LakeFile) -> str:
        uri = self._storage.uri(file.name)
        return f"file://{uri}" if uri.startswith("/") else uri

    def _table(self) -> Table:
        if self._opened is not None:
            return self._opened.refresh()
        from pyiceberg.exceptions import NoSuchTableError

        catalog = self._catalog()
        namespace, dot, _ = self._name.rpartition(".")
        if not dot:
            raise Failure(
                f"{self._name!r} is not the name of an Iceberg table: write NAMESPACE.TABLE, such as lake.records"
            )
        catalog.create_namespace_if_not_exists(namespace)
        try:
            self._opened = catalog.load_table(self._name)
        except NoSuchTableError:
            self._opened = self._made(catalog)
        return self._opened

    def _made(self, catalog: Catalog) -> Table:
        table = catalog.create_table(self._name, LAKE_SCHEMA)
        with table.update_spec() as spec:
            spec.add_identity("topic")
            spec.add_identity("hour")
        return table

    def _catalog(self) -> Catalog:
        from pyiceberg.catalog import load_catalog

        root = self._storage.uri("").rstrip("/")
        if not self._properties and not root.startswith("/"):
            raise Failure(
                f"the lake {root} is not a local folder, so its Iceberg table needs a catalog: set lake.catalog"
            )
        here: dict[str, Any] = {
            "type": "sql",
            "uri": f"sqlite:///{root}/catalog.db",
            "warehouse": f"file://{root}/iceberg",
        }
        return load_catalog("headrace", **(self._properties or here))
