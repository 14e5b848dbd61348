"""The data source that Spark loads for format("headrace"): reads and writes, batch and streaming.

Spark finds it without registration, through the package pyspark_headrace. It only checks options and schemas; the
readers are in source/batch.py and source/stream.py, the writers in sink/writers.py.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from headrace.spark.option_values import boolean
from headrace.spark.source.columns_asked import check_schema, full_schema
from headrace.spark.source.options import source_options

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class HeadraceDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> str:
        return full_schema(boolean("includeHeaders", self.options.get("includeHeaders", "false")))

    def reader(self, schema: StructType) -> DataSourceReader:
        from headrace.spark.source.batch import BatchReader, FilteringBatchReader

        check_schema(schema)
        kind = FilteringBatchReader if _spark_pushes_filters() else BatchReader
        return kind(source_options(self.options, "batch"), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        from headrace.spark.source.stream import StreamReader

        check_schema(schema)
        return StreamReader(source_options(self.options, "stream"), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headrace.spark.sink.writers import make_writer

        return make_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 (Spark's name)
        from headrace.spark.sink.writers import make_stream_writer

        return make_stream_writer(self.options, schema, overwrite)


def _spark_pushes_filters() -> bool:
    """Whether this is the Python worker in which Spark pushes filters down, which runs only where pushdown is on."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHDOWN_WORKER in sys.modules or getattr(main, "name", None) == _PUSHDOWN_WORKER
