"""The columns of the source: their names and types, which are those of Spark's Kafka connector, and what they cost.

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
    type: str  # in Spark's words
    part: Column  # what must be decoded for it; nothing for what a range knows


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
    """Refuse what the source cannot give."""
    for field in schema.fields:
        asked = COLUMNS.get(field.name)
        if asked is None:
            raise Failure(f"the source has no column {field.name}: it has {', '.join(COLUMNS)}")
        given = field.dataType.simpleString()
        if given != asked.type:
            raise Failure(
                f"column {field.name} is {asked.type}, the schema says {given}: "
                f"read it as it is and cast it, such as CAST({field.name} AS {given.upper()})"
            )
