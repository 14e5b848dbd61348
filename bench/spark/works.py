"""The works that are measured, each the same for both formats but for the format's name.

Called by __main__.py in a process with one warm Spark session. "Tuned" is what makes Spark's connector fastest: large
fetches, many records a poll, no CRC check; headrace's source reads with the same settings, so it skips the check too.
A work that reads only values says so with a schema where the format heeds one: Spark prunes columns for its own
connector by itself.

A stream is timed by Spark's own account of its micro-batches, planning and bookkeeping included, and its CPU is counted
from the first of them on. What it takes to start is told apart: a stream starts once and then runs for weeks, and
here that would be a good part of the whole.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from bench.spark.used import Used

FORMATS = ("headrace", "kafka")
TUNED = {
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(16 << 20),
    "kafka.max.poll.records": "10000",
    "kafka.check.crcs": "false",
}
READ_ALL_SECONDS = 600
_LOOK_S = 0.01


@dataclass(frozen=True)
class Place:
    """Where a work reads or writes."""

    bootstrap: str
    topic: str
    records: int
    value_bytes: int


@dataclass(frozen=True)
class Took:
    working_s: float
    cpu_s: float
    starting_s: float | None = None  # of a stream


Work = Callable[[SparkSession, str, Place], Took]


def aggregate(spark: SparkSession, source: str, place: Place) -> Took:
    """The sum of the values' lengths: values are read, hardly anything is done with them."""
    used = Used()
    total = _batch(spark, source, place, "value BINARY").selectExpr("sum(length(value))").first()
    assert total is not None
    assert total[0] == place.records * place.value_bytes, f"{source} read {total[0]} bytes of values"
    return Took(used.seconds(), used.cpu_seconds())


def all_columns(spark: SparkSession, source: str, place: Place) -> Took:
    """Every column of every record, into nothing."""
    used = Used()
    _batch(spark, source, place).write.format("noop").mode("overwrite").save()
    return Took(used.seconds(), used.cpu_seconds())


def stream_values(spark: SparkSession, source: str, place: Place) -> Took:
    """The values of everything that is there, as a stream, into nothing."""
    return _drain(_stream(spark, source, place, "value BINARY").select("value"))


def stream_all_columns(spark: SparkSession, source: str, place: Place) -> Took:
    """Every column of everything that is there, as a stream, into nothing."""
    return _drain(_stream(spark, source, place))


def stream_steps(spark: SparkSession, source: str, place: Place) -> Took:
    """The values in twenty micro-batches: what a batch costs beside its records."""
    limit = {"maxOffsetsPerTrigger": str(-(-place.records // 20))}
    return _drain(_stream(spark, source, place, "value BINARY", **limit).select("value"))


def write(spark: SparkSession, source: str, place: Place) -> Took:
    """As many records of the same size, written with idempotence."""
    letters = f"repeat('x', {place.value_bytes})"
    rows = spark.range(0, place.records, 1, 4).selectExpr(
        "CAST(CAST(id AS STRING) AS BINARY) AS key", f"CAST({letters} AS BINARY) AS value"
    )
    options = {"kafka.bootstrap.servers": place.bootstrap, "topic": f"{place.topic}-written-{source}"}
    if source == "kafka":
        options |= {"kafka.acks": "all", "kafka.enable.idempotence": "true", "kafka.batch.size": "1000000",
                    "kafka.linger.ms": "5", "kafka.buffer.memory": "67108864"}  # fmt: skip
    used = Used()
    rows.write.format(source).options(**options).mode("append").save()
    return Took(used.seconds(), used.cpu_seconds())


WORKS: dict[str, Work] = {
    "aggregate": aggregate,
    "all columns": all_columns,
    "stream of values": stream_values,
    "stream of all columns": stream_all_columns,
    "stream in 20 batches": stream_steps,
    "write": write,
}


def _options(place: Place) -> dict[str, str]:
    return {"kafka.bootstrap.servers": place.bootstrap, "subscribe": place.topic, **TUNED}


def _batch(spark: SparkSession, source: str, place: Place, schema: str | None = None) -> DataFrame:
    reader = spark.read.format(source).options(**_options(place))
    if schema and source == "headrace":
        reader = reader.schema(schema)
    return reader.load()


def _stream(spark: SparkSession, source: str, place: Place, schema: str | None = None, **options: str) -> DataFrame:
    reader = spark.readStream.format(source).options(**_options(place), startingOffsets="earliest", **options)
    if schema and source == "headrace":
        reader = reader.schema(schema)
    return reader.load()


def _drain(rows: DataFrame) -> Took:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as checkpoint:
        writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
        start = Used()
        query = writer.trigger(availableNow=True).start()
        while query.isActive and not query.status["isTriggerActive"]:
            time.sleep(_LOOK_S)
        starting_s, used = start.seconds(), Used()
        if not query.awaitTermination(READ_ALL_SECONDS):
            query.stop()
            raise RuntimeError(f"the stream did not end within {READ_ALL_SECONDS} s")
        working_s = sum(batch.durationMs["triggerExecution"] for batch in query.recentProgress) / 1000
        return Took(working_s, used.cpu_seconds(), starting_s)
