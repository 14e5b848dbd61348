"""The measured works; for both formats they differ only in the format's name.

Called by __main__.py in a process with one warm Spark session. "Tuned" are the settings with which Spark's connector is
fastest: large fetches, many records per poll, no CRC check; headrace's source gets the same settings, so it skips the
check too. A work that reads only values passes a schema to a format that supports one; for its own connector Spark
prunes columns by itself.

A stream is timed by Spark's progress reports of its micro-batches, including planning and commits, and its CPU is
counted from the first one. Its start is reported separately: a stream starts once and runs for weeks, but here the
start would be a large part of the total.
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
class Dataset:
    """The topic that a work reads, and its size."""

    bootstrap: str
    topic: str
    records: int
    value_bytes: int


@dataclass(frozen=True)
class Took:
    working_s: float
    cpu_s: float
    starting_s: float | None = None  # of a stream


Work = Callable[[SparkSession, str, Dataset], Took]


def aggregate(spark: SparkSession, source: str, dataset: Dataset) -> Took:
    """The sum of the values' lengths: reads the values with hardly any processing."""
    used = Used()
    total = _batch(spark, source, dataset, "value BINARY").selectExpr("sum(length(value))").first()
    assert total is not None
    assert total[0] == dataset.records * dataset.value_bytes, f"{source} read {total[0]} bytes of values"
    return Took(used.seconds(), used.cpu_seconds())


def all_columns(spark: SparkSession, source: str, dataset: Dataset) -> Took:
    """Read every column of every record, and discard it."""
    used = Used()
    _batch(spark, source, dataset).write.format("noop").mode("overwrite").save()
    return Took(used.seconds(), used.cpu_seconds())


def stream_values(spark: SparkSession, source: str, dataset: Dataset) -> Took:
    """Stream the values of all records, and discard them."""
    return _drain(_stream(spark, source, dataset, "value BINARY").select("value"))


def stream_all_columns(spark: SparkSession, source: str, dataset: Dataset) -> Took:
    """Stream every column of all records, and discard them."""
    return _drain(_stream(spark, source, dataset))


def stream_steps(spark: SparkSession, source: str, dataset: Dataset) -> Took:
    """Stream the values in twenty micro-batches: shows the fixed cost of a batch."""
    limit = {"maxOffsetsPerTrigger": str(-(-dataset.records // 20))}
    return _drain(_stream(spark, source, dataset, "value BINARY", **limit).select("value"))


def write(spark: SparkSession, source: str, dataset: Dataset) -> Took:
    """Write as many records of the same size, with idempotence."""
    letters = f"repeat('x', {dataset.value_bytes})"
    rows = spark.range(0, dataset.records, 1, 4).selectExpr(
        "CAST(CAST(id AS STRING) AS BINARY) AS key", f"CAST({letters} AS BINARY) AS value"
    )
    options = {"kafka.bootstrap.servers": dataset.bootstrap, "topic": f"{dataset.topic}-written-{source}"}
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


def _options(dataset: Dataset) -> dict[str, str]:
    return {"kafka.bootstrap.servers": dataset.bootstrap, "subscribe": dataset.topic, **TUNED}


def _batch(spark: SparkSession, source: str, dataset: Dataset, schema: str | None = None) -> DataFrame:
    reader = spark.read.format(source).options(**_options(dataset))
    if schema and source == "headrace":
        reader = reader.schema(schema)
    return reader.load()


def _stream(spark: SparkSession, source: str, dataset: Dataset, schema: str | None = None, **options: str) -> DataFrame:
    reader = spark.readStream.format(source).options(**_options(dataset), startingOffsets="earliest", **options)
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
