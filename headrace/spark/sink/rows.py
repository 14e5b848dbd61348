"""Rows of a DataFrame as the sink takes them: which columns there may be, and an Arrow batch as columns of records.

`check_schema` runs on the driver, before any task does, and refuses what does not fit with one line that names the
column. `columns_of` runs in tasks, on whole Arrow batches: no row is ever a Python object.

    value       bytes or text; needed                topic       text, if the sink has no topic option
    key         bytes or text                        partition   a number; without it the key decides, as in Java
    headers     array<struct<key,value>>             timestamp   when it happened; without it, now
    tag         text, or an array of it              -> headers headrace.tag
    delay_ms    a number                             -> header headrace.delay-ms
    deliver_at  a timestamp                          -> header headrace.deliver-at, milliseconds since 1970

The other columns that the source gives (offset, timestampType) may be there and mean nothing. Wire code wants no Arrow,
and this is the only file that has both in hand.
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
    """An Arrow batch, taken apart."""

    rows: Rows
    topics: Numbers | None  # numbers in `topic_names`
    topic_names: tuple[str, ...]
    partitions: Numbers | None


def check_schema(schema: Any, topic: str) -> None:
    """Refuse what cannot be written. `schema` is Spark's StructType; `topic` the option of that name."""
    names = [field.name.lower() for field in schema.fields]
    for name in names:
        if names.count(name) > 1:
            raise Failure(f"column {name} is there {names.count(name)} times: the sink cannot tell which one is meant")
    if "value" not in names:
        raise Failure(f"there is no column value among {', '.join(names)}: the sink writes that one as the message")
    if "topic" not in names and not topic:
        raise Failure("the sink does not know where to write: give option('topic', NAME) or a column topic")
    for field in schema.fields:
        fitting = _FITTING.get(field.name.lower())
        if fitting is None:
            if field.name.lower() in _PASSED_OVER:
                continue
            known = ", ".join(_FITTING)
            raise Failure(f"column {field.name} means nothing to the sink: drop it, or rename it to one of {known}")
        found = _type_name(field.dataType)
        if found not in fitting:
            raise Failure(f"column {field.name} is {found}, and the sink needs {' or '.join(fitting)}: cast it")


def _type_name(kind: Any) -> str:
    name = str(kind.simpleString())
    if name.startswith("array<struct<"):
        shape = {field.name: field.dataType.simpleString() for field in kind.elementType.fields}
        if shape == {"key": "string", "value": "binary"}:
            return _HEADER_LISTS
    return "array of string" if name == "array<string>" else name


def columns_of(batch: pa.RecordBatch, topic: str, now_ms: int) -> RowColumns:
    """`topic` goes before a column of that name, as in Spark's own connector."""
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
        raise Failure("a row has no topic: its column topic is null, and the sink has no option of that name")
    coded = column.dictionary_encode()
    return _numbers(coded.indices), tuple(coded.dictionary.to_pylist())


def _times(column: pa.Array | None, rows: int, now_ms: int) -> memoryview | bytes:
    if column is None:
        return now_ms.to_bytes(8, "little") * rows
    from pyarrow import compute as pc  # slow to load, and most writes do without

    times = column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).fill_null(now_ms)
    if rows and pc.min(times).as_py() < 0:
        raise Failure(f"column timestamp has a time before 1970 ({pc.min(column).as_py()}): brokers take none such")
    return _bytes(times.buffers()[1])[8 * times.offset : 8 * (times.offset + rows)]


def _blobs(column: pa.Array) -> Blobs:
    if not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
        column = column.cast(pa.binary())  # the wide and the view forms of both
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
        raise Failure("column tag has a list with a null in it: leave such tags out")
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
