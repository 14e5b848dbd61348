"""The input of the sink: the columns that a DataFrame may have, and the conversion of Arrow batches to record columns.

`check_schema` runs on the driver before any task, and rejects an unsuitable column with one line that names it.
`columns_of` runs in tasks, on whole Arrow batches: no row becomes a Python object.

    value       bytes or text; required              topic       text, if the sink has no topic option
    key         bytes or text                        partition   a number; without it by the key, as in Java
    headers     array<struct<key,value>>             timestamp   of the record; without it, now
    tag         text, or an array of it              -> headers headrace.tag
    delay_ms    a number                             -> header headrace.delay-ms
    deliver_at  a timestamp                          -> header headrace.deliver-at, milliseconds since 1970

The other columns of the source (offset, timestampType) are accepted and ignored. The wire code does not import Arrow;
this is the only file that uses both.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from headrace.model.failure import Failure
from headrace.wire.row_columns import Blobs, HeaderLists, Numbers, Rows

_TAG, _DELAY, _DELIVER_AT = b"headrace.tag", b"headrace.delay-ms", b"headrace.deliver-at"
_BYTES = ("binary", "string")
_HEADER_LISTS = "array of struct<key string, value binary>"
_FITTING = {
    "value": _BYTES,
    "key": _BYTES,
    "headers": (_HEADER_LISTS,),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
    "tag": ("string", "array of string"),
    "delay_ms": ("int", "bigint"),
    "deliver_at": ("timestamp",),
}
_PASSED_OVER = ("offset", "timestamptype")


class RowColumns(NamedTuple):
    """The columns of an Arrow batch."""

    rows: Rows
    topics: Numbers | None  # indexes into `topic_names`
    topic_names: tuple[str, ...]
    partitions: Numbers | None


def check_schema(schema: Any, topic: str) -> None:
    """Reject a schema that cannot be written. `schema` is Spark's StructType, `topic` the option of that name."""
    names = [field.name.lower() for field in schema.fields]
    for name in names:
        if names.count(name) > 1:
            raise Failure(f"the DataFrame has {names.count(name)} columns {name}: rename or drop all but one")
    if "value" not in names:
        raise Failure(
            f"the DataFrame has no column value, only {', '.join(names)}: name the column to be written as value"
        )
    if "topic" not in names and not topic:
        raise Failure("no topic to write to: give option('topic', NAME) or a column topic")
    for field in schema.fields:
        fitting = _FITTING.get(field.name.lower())
        if fitting is None:
            if field.name.lower() in _PASSED_OVER:
                continue
            known = ", ".join(_FITTING)
            raise Failure(f"the sink does not use column {field.name}: drop it, or rename it to one of {known}")
        found = _type_name(field.dataType)
        if found not in fitting:
            raise Failure(f"column {field.name} has type {found}, but the sink needs {' or '.join(fitting)}: cast it")


def _type_name(kind: Any) -> str:
    name = str(kind.simpleString())
    if name.startswith("array<struct<"):
        shape = {field.name: field.dataType.simpleString() for field in kind.elementType.fields}
        if shape == {"key": "string", "value": "binary"}:
            return _HEADER_LISTS
    return "array of string" if name == "array<string>" else name


def columns_of(batch: pa.RecordBatch, topic: str, now_ms: int) -> RowColumns:
    """The option `topic` takes precedence over the column, as in Spark's own connector."""
    found = {name.lower(): batch.column(at) for at, name in enumerate(batch.schema.names)}
    topics, names = (None, (topic,)) if topic else _topics(found["topic"])
    headers: tuple[HeaderLists, ...] = ()
    marks: list[tuple[bytes, Blobs]] = []
    if "headers" in found:
        headers = (_header_lists(found["headers"]),)
    if "tag" in found:
        tag = found["tag"]
        if pa.types.is_list(tag.type) or pa.types.is_large_list(tag.type):
            headers += (_tag_lists(tag),)
        else:
            marks.append((_TAG, _blobs(tag)))
    if "delay_ms" in found:
        marks.append((_DELAY, _blobs(found["delay_ms"].cast(pa.string()))))
    if "deliver_at" in found:
        moments = found["deliver_at"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        marks.append((_DELIVER_AT, _blobs(moments.cast(pa.string()))))
    rows = Rows(
        batch.num_rows,
        _times(found.get("timestamp"), batch.num_rows, now_ms),
        _blobs(found["key"]) if "key" in found else None,
        _blobs(found["value"]),
        headers,
        tuple(marks),
    )
    partitions = _numbers(found["partition"]) if "partition" in found else None
    return RowColumns(rows, topics, names, partitions)


def _topics(column: pa.Array) -> tuple[Numbers, tuple[str, ...]]:
    if column.null_count:
        raise Failure("a row has no topic: its column topic is null; set the option topic, or filter such rows out")
    coded = column.dictionary_encode()
    return _numbers(coded.indices), tuple(coded.dictionary.to_pylist())


def _times(column: pa.Array | None, rows: int, now_ms: int) -> memoryview | bytes:
    if column is None:
        return now_ms.to_bytes(8, "little") * rows
    from pyarrow import compute as pc  # slow to import, and most writes do not need it

    times = column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).fill_null(now_ms)
    if rows and pc.min(times).as_py() < 0:
        raise Failure(
            f"column timestamp has a time before 1970 ({pc.min(column).as_py()}), which brokers reject: correct it"
        )
    return _bytes(times.buffers()[1])[8 * times.offset : 8 * (times.offset + rows)]


def _blobs(column: pa.Array) -> Blobs:
    if not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
        column = column.cast(pa.binary())  # the large and the view types of both
    valid, offsets, data = column.buffers()
    return Blobs(len(column), _bytes(offsets) or bytes(4), _bytes(data), _bits(column, valid), column.offset)


def _numbers(column: pa.Array) -> Numbers:
    if column.type != pa.int32():
        column = column.cast(pa.int32())
    valid, data = column.buffers()
    return Numbers(len(column), _bytes(data), _bits(column, valid), column.offset)


def _header_lists(column: pa.Array) -> HeaderLists:
    column = _narrow(column)
    names, contents = column.values.flatten()
    return _lists(column, _blobs(names), _blobs(contents))


def _tag_lists(column: pa.Array) -> HeaderLists:
    column = _narrow(column)
    tags = column.values
    if tags.null_count:
        raise Failure("column tag has a list with a null in it: remove nulls from the lists")
    return _lists(column, _blobs(pa.repeat(_TAG, len(tags))), _blobs(tags))


def _narrow(column: pa.Array) -> pa.Array:
    if pa.types.is_large_list(column.type):
        return column.cast(pa.list_(column.type.value_type))
    return column


def _lists(column: pa.Array, names: Blobs, contents: Blobs) -> HeaderLists:
    valid, offsets = column.buffers()[:2]
    return HeaderLists(len(column), _bytes(offsets) or bytes(4), names, contents, _bits(column, valid), column.offset)


def _bits(column: pa.Array, valid: Any) -> memoryview | bytes | None:
    return _bytes(valid) if column.null_count else None


def _bytes(buffer: Any) -> memoryview | bytes:
    return b"" if buffer is None else memoryview(buffer).cast("B")
