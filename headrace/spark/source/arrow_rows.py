"""Builds Arrow record batches with exactly the schema that Spark asked for, without a Python object per row.

Called by task.py. A constant column (topic, partition) is built once for the largest batch so far, and sliced without a
copy. Invariant: the schema of every batch is `to_arrow_schema(schema, "UTC")`, which Spark compares exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.model.topic_partition import TopicPartition
from headrace.spark.source.columns_asked import COLUMNS
from headrace.wire.columns import Blobs, Column, Columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class ArrowRows:
    def __init__(self, schema: StructType, place: TopicPartition) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._place = place
        self._constants: dict[str, pa.Array] = {}
        self.wanted = Column(0)
        for name in self._schema.names:
            self.wanted |= COLUMNS[name].part

    def batch(self, columns: Columns) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([self._array(field, columns) for field in self._schema], schema=self._schema)

    def _array(self, field: pa.Field, columns: Columns) -> pa.Array:
        name, rows = field.name, columns.rows
        if name == "key":
            return _strings(field.type, rows, columns.keys)
        if name == "value":
            return _strings(field.type, rows, columns.values)
        if name == "offset":
            return _numbers(field.type, rows, columns.offsets)
        if name == "timestamp":
            return _numbers(field.type, rows, columns.timestamps)
        if name == "timestampType":
            return _numbers(field.type, rows, columns.timestamp_types)
        if name == "headers":
            return _headers(field.type, columns)
        return self._constant(field, rows)

    def _constant(self, field: pa.Field, rows: int) -> pa.Array:
        made = self._constants.get(field.name)
        if made is None or len(made) < rows:
            value = self._place.topic if field.name == "topic" else self._place.partition
            made = self._constants[field.name] = pa.repeat(pa.scalar(value, field.type), rows)
        return made.slice(0, rows)


def _numbers(kind: pa.DataType, rows: int, buffer: bytearray | None) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(buffer)], null_count=0)


def _strings(kind: pa.DataType, rows: int, blobs: Blobs | None) -> pa.Array:
    assert blobs is not None
    validity = None if blobs.validity is None else pa.py_buffer(blobs.validity)
    buffers = [validity, pa.py_buffer(blobs.ends), pa.py_buffer(blobs.data)]
    return pa.Array.from_buffers(kind, rows, buffers, null_count=blobs.nulls)


def _headers(kind: pa.ListType, columns: Columns) -> pa.Array:
    names, contents = columns.header_names, columns.header_values
    assert names is not None
    count = len(names.ends) // 4 - 1
    pair = kind.value_type
    parts = [_strings(pair.field(0).type, count, names), _strings(pair.field(1).type, count, contents)]
    pairs = pa.Array.from_buffers(pair, count, [None], null_count=0, children=parts)
    return pa.Array.from_buffers(
        kind, columns.rows, [None, pa.py_buffer(columns.header_list_ends)], null_count=0, children=[pairs]
    )
