"""The columns of the source: names and types as in Spark's Kafka connector, and what each needs decoded.

Called by data_source.py for the schema and to check a narrower one that a user gives, and in tasks to decode only the
columns asked for. Invariant: a schema that passes `check_schema` can be served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.model.failure import Failure
from headrace.wire.columns import Column

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class ColumnSpec(NamedTuple):
    type: str  # as Spark names it
    part: Column  # what must be decoded for it; nothing for a constant of the range


COLUMNS = {
    "key": ColumnSpec("binary", Column.KEY),
    "value": ColumnSpec("binary", Column.VALUE),
    "topic": ColumnSpec("string", Column(0)),
    "partition": ColumnSpec("int", Column(0)),
    "offset": ColumnSpec("bigint", Column.OFFSET),
    "timestamp": ColumnSpec("timestamp", Column.TIMESTAMP),
    "timestampType": ColumnSpec("int", Column.TIMESTAMP_TYPE),
    "headers": ColumnSpec("array<struct<key:string,value:binary>>", Column.HEADERS),
}


def full_schema(include_headers: bool) -> str:
    return ", ".join(f"{name} {asked.type}" for name, asked in COLUMNS.items() if name != "headers" or include_headers)


def check_schema(schema: StructType) -> None:
    """Reject columns and types that the source does not have."""
    for field in schema.fields:
        asked = COLUMNS.get(field.name)
        if asked is None:
            raise Failure(f"the source has no column {field.name}: choose from {', '.join(COLUMNS)}")
        given = field.dataType.simpleString()
        if given != asked.type:
            raise Failure(
                f"column {field.name} has type {asked.type}, and the schema says {given}: "
                f"read it as {asked.type} and cast it: CAST({field.name} AS {given.upper()})"
            )
