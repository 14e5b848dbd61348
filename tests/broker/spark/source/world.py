"""The source without Spark: its readers, planned and read in this process, against a real broker."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.spark.source.batch import FilteringBatchReader
from headrace.spark.source.options import source_options
from headrace.spark.source.stream import Json, StreamReader

Row = dict[str, Any]

TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


def schema_of(*names: str) -> StructType:
    return StructType([StructField(name, TYPES[name]) for name in names or TYPES])


def named(options: dict[str, object]) -> dict[str, str]:
    """`kafka__isolation__level` stands for `kafka.isolation.level`, since Python has no dots in names."""
    return {name.replace("__", "."): str(value) for name, value in options.items()}


class Source:
    """The source on one cluster."""

    def __init__(self, bootstrap: str) -> None:
        self._base = {"kafka.bootstrap.servers": bootstrap, "kafka.default.api.timeout.ms": "20000"}

    def batch(self, filters: Sequence[Filter] = (), columns: Sequence[str] = (), **options: object) -> list[list[Row]]:
        """The rows of a batch, task by task."""
        reader = FilteringBatchReader(source_options(self._base | named(options), "batch"), schema_of(*columns))
        assert list(reader.pushFilters(list(filters))) == list(filters)
        return [rows_of(reader, task) for task in travelled(reader.partitions())]

    def rows(self, filters: Sequence[Filter] = (), columns: Sequence[str] = (), **options: object) -> list[Row]:
        return [row for task in self.batch(filters, columns, **options) for row in task]

    def stream(self, **options: object) -> Stream:
        return Stream(StreamReader(source_options(self._base | named(options), "stream"), schema_of()))


class Stream:
    """A query as Spark drives it: one micro-batch after the other."""

    def __init__(self, reader: StreamReader, start: Json | None = None) -> None:
        self.reader = reader
        self.start = reader.initialOffset() if start is None else start

    def batch(self, limit: ReadLimit | None = None) -> list[list[Row]]:
        """The rows of the next micro-batch, task by task."""
        end = self.reader.latestOffset(self.start, limit or self.reader.getDefaultReadLimit())
        tasks = travelled(self.reader.partitions(self.start, end))
        read = [rows_of(self.reader, task) for task in tasks]
        self.start = end
        return read

    def rows(self, limit: ReadLimit | None = None) -> list[Row]:
        return [row for task in self.batch(limit) for row in task]


def rows_of(reader: FilteringBatchReader | StreamReader, task: InputPartition) -> list[Row]:
    rows: list[Row] = []
    for batch in reader.read(task):
        assert isinstance(batch, pa.RecordBatch)
        batch.validate(full=True)
        rows += batch.to_pylist()
    return rows


def travelled(tasks: Sequence[InputPartition]) -> list[InputPartition]:
    """Tasks as executors get them."""
    return [pickle.loads(pickle.dumps(task)) for task in tasks]


def values(rows: Sequence[Row]) -> list[str]:
    return [row["value"].decode() for row in rows]
