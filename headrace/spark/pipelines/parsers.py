"""Parses log lines into columns: JSON, logfmt and access logs. Uses Spark's own functions: no Python per row.

Called by pipelines that parse values. A parser adds a column `line` (the value as text), a column for each field, and
`parsed`, which is false for a line that is not in the format. Invariant: a line that cannot be parsed has null fields
and parsed = false; it never fails the query.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec

from headrace.model.failure import Failure
from headrace.spark.pipelines.configuration import Section

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Format = Literal["json", "logfmt", "access-log"]
TYPES = ("string", "int", "bigint", "double", "boolean", "timestamp")
NAME = re.compile(r"[A-Za-z_][\w.-]*")

# host ident user [time] "method path protocol" status bytes ["referrer" "agent" [seconds]]
ACCESS_LINE = (
    r'^(\S+) (\S+) (\S+) \[([^\]]+)\] "([A-Z]+) (\S+)(?: ([^"]*))?" (\d{3}) (\d+|-)'
    r'(?: "([^"]*)" "([^"]*)"(?: ([\d.]+))?)?\s*$'
)
ACCESS_TIME = "dd/MMM/yyyy:HH:mm:ss Z"
ACCESS_FIELDS = {
    "host": "string", "ident": "string", "user": "string", "time": "timestamp", "method": "string", "path": "string",
    "protocol": "string", "status": "int", "bytes": "bigint", "referrer": "string", "agent": "string",
    "seconds": "double",
}  # fmt: skip


class Parse(Section, kw_only=True, frozen=True):
    """`fields` names the fields of a JSON or logfmt line with their types; an access log has its own."""

    format: Format
    fields: dict[str, str] = msgspec.field(default_factory=dict)


def check_parse(parse: Parse, key: str) -> None:
    if parse.format == "access-log":
        if parse.fields:
            raise Failure(f"{key}.fields: an access log has fixed fields: {', '.join(ACCESS_FIELDS)}; remove the key")
        return
    if not parse.fields:
        raise Failure(f"{key}.fields is missing: name the fields of a {parse.format} line, such as `status: int`")
    for name, kind in parse.fields.items():
        if kind not in TYPES:
            raise Failure(f"{key}.fields.{name}: {kind!r} is not a type: choose one of {', '.join(TYPES)}")
        if not NAME.fullmatch(name):
            raise Failure(f"{key}.fields: {name!r} is not a field name: use letters, digits, _ . and - only")


def field_types(parse: Parse) -> dict[str, str]:
    return ACCESS_FIELDS if parse.format == "access-log" else parse.fields


def parsed(rows: DataFrame, parse: Parse) -> DataFrame:
    """The rows with the columns line, parsed and one for each field."""
    from pyspark.sql.functions import col

    rows = rows.withColumn("line", col("value").cast("string"))
    if parse.format == "json":
        return _json(rows, parse.fields)
    if parse.format == "logfmt":
        return _logfmt(rows, parse.fields)
    return _access_log(rows)


def _json(rows: DataFrame, fields: dict[str, str]) -> DataFrame:
    from pyspark.sql.functions import col, from_json

    # A malformed line is marked by its own column; in PERMISSIVE mode it would otherwise only be nulls.
    schema = ", ".join([f"`{name}` {kind}" for name, kind in fields.items()] + ["`_garbled` string"])
    rows = rows.withColumn("_fields", from_json("line", schema, {"columnNameOfCorruptRecord": "_garbled"}))
    ok = col("_fields").isNotNull() & col("_fields._garbled").isNull()
    columns = {name: col(f"_fields.`{name}`") for name in fields}
    return rows.withColumns({**columns, "parsed": ok}).drop("_fields")


def _logfmt(rows: DataFrame, fields: dict[str, str]) -> DataFrame:
    from pyspark.sql.functions import col

    columns = {name: _cast(_logfmt_value(name), kind) for name, kind in fields.items()}
    return rows.withColumns({**columns, "parsed": col("line").rlike(r"(?:^|\s)[\w.-]+=")})


def _logfmt_value(name: str) -> Column:
    """`name=value` or `name="value with \\"quotes\\""`; null if the line has no such field."""
    from pyspark.sql.functions import col, lit, regexp_extract, regexp_replace, when

    pattern = rf'(?:^|\s){re.escape(name)}=(?:"((?:[^"\\]|\\.)*)"|([^\s"]*))'
    quoted = regexp_replace(regexp_extract("line", pattern, 1), lit(r"\\(.)"), lit("$1"))
    bare = regexp_extract("line", pattern, 2)
    value = when(quoted != "", quoted).otherwise(bare)
    return when(col("line").rlike(pattern), value)


def _access_log(rows: DataFrame) -> DataFrame:
    from pyspark.sql.functions import col, lit, nullif, regexp_extract, try_to_timestamp, when

    ok = col("line").rlike(ACCESS_LINE)
    columns: dict[str, Column] = {}
    for number, (name, kind) in enumerate(ACCESS_FIELDS.items(), 1):
        text = nullif(nullif(regexp_extract("line", ACCESS_LINE, number), lit("")), lit("-"))
        value = try_to_timestamp(text, lit(ACCESS_TIME)) if name == "time" else _cast(text, kind)
        columns[name] = when(ok, value)
    return rows.withColumns({**columns, "parsed": ok})


def _cast(column: Column, kind: str) -> Column:
    """Cast to a type; invalid text becomes null instead of failing the query."""
    return column if kind == "string" else column.try_cast(kind)
