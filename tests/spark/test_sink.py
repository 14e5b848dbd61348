"""The sink on real Spark: what Spark calls and when, with the real source at the other end."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import BinaryType, StringType

from tests.broker.spark.sink.world import committed
from tests.spark.topics import Topics

PATIENCE_S = 300


def finish(query: StreamingQuery) -> None:
    try:
        assert query.awaitTermination(PATIENCE_S), f"the query did not end within {PATIENCE_S} s: {query.status}"
    finally:
        query.stop()


def write(frame: DataFrame, topics: Topics, topic: str, **options: str) -> None:
    (
        frame.write.format("headrace")
        .mode("append")
        .option("kafka.bootstrap.servers", topics.bootstrap)
        .option("topic", topic)
        .options(**options)
        .save()
    )


def stream_to(frame: DataFrame, topics: Topics, topic: str, checkpoint: Path) -> StreamingQuery:
    return (
        frame.writeStream.format("headrace")
        .option("kafka.bootstrap.servers", topics.bootstrap)
        .option("topic", topic)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def stream_from(spark: SparkSession, topics: Topics, topic: str) -> DataFrame:
    return (
        spark.readStream.format("headrace")
        .option("kafka.bootstrap.servers", topics.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "40")
        .load()
    )


def test_a_stream_from_topic_to_topic_goes_on_after_a_restart(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.create("in", 2), topics.create("out", 3)
    rows = [f"row {number:03}" for number in range(150)]
    topics.fill(source, 0, rows[:60])
    topics.fill(source, 1, rows[60:100])
    frame = stream_from(spark, topics, source).select("value")
    finish(stream_to(frame, topics, target, tmp_path / "checkpoint"))
    assert committed(topics.bootstrap, target) == rows[:100]
    topics.fill(source, 1, rows[100:])
    finish(stream_to(frame, topics, target, tmp_path / "checkpoint"))
    assert committed(topics.bootstrap, target) == rows


def test_a_worker_that_is_killed_in_the_middle_of_a_batch_leaves_nothing_behind(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.create("in", 2), topics.create("out", 1)
    rows = [f"row {number:03}" for number in range(30)]
    topics.fill(source, 0, rows[:15])
    topics.fill(source, 1, rows[15:])
    once = tmp_path / "killed"

    def dies_once(value: bytes) -> bytes:
        if value.endswith(b"7") and not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    deadly = udf(dies_once, BinaryType(), useArrow=False)
    frame = stream_from(spark, topics, source).select(deadly("value").alias("value"))
    # On one machine the query fails with the task; a cluster may run the task again.
    with suppress(PySparkException):
        finish(stream_to(frame, topics, target, tmp_path / "checkpoint"))
    assert once.exists()
    finish(stream_to(frame, topics, target, tmp_path / "checkpoint"))
    assert committed(topics.bootstrap, target) == rows


def test_a_write_brings_every_column_and_the_source_reads_it_back(spark: SparkSession, topics: Topics) -> None:
    target = topics.create("out", 2, retention_ms="-1")  # the record is dated long ago
    frame = spark.sql(
        "SELECT 'k' AS key, CAST('v' AS BINARY) AS value, 1 AS partition, TIMESTAMP '2026-01-02 03:04:05.678' AS"
        " timestamp, array(named_struct('key', 'h', 'value', CAST('1' AS BINARY))) AS headers, 'red' AS tag,"
        " 1500 AS delay_ms"
    )
    write(frame, topics, target, **{"kafka.compression.type": "lz4"})
    (row,) = (
        spark.read.format("headrace")
        .option("kafka.bootstrap.servers", topics.bootstrap)
        .option("subscribe", target)
        .option("includeHeaders", "true")
        .load()
        .collect()
    )
    assert (bytes(row.key), bytes(row.value), row.partition) == (b"k", b"v", 1)
    assert row.timestamp.isoformat() == "2026-01-02T03:04:05.678000"
    headers = [(header.key, bytes(header.value)) for header in row.headers]
    assert headers == [("h", b"1"), ("headrace.tag", b"red"), ("headrace.delay-ms", b"1500")]


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_write_counts_as_a_whole(spark: SparkSession, topics: Topics, delivery: str) -> None:
    target = topics.create("out", 3)
    frame = spark.range(0, 5000, 1, 4).selectExpr("CAST(id AS STRING) AS key", "lpad(id, 6, '0') AS value")
    write(frame, topics, target, delivery=delivery)
    assert committed(topics.bootstrap, target) == [f"{number:06}" for number in range(5000)]


def test_a_write_that_fails_leaves_nothing_that_counts(spark: SparkSession, topics: Topics) -> None:
    target = topics.create("out", 1)
    frame = spark.range(0, 40_000, 1, 2).selectExpr("CAST(id AS STRING) AS value")

    def fails_late(value: str) -> str:
        if value == "39999":
            raise ValueError("the last row is bad")
        return value

    picky = udf(fails_late, StringType(), useArrow=False)
    with pytest.raises(PySparkException, match="the last row is bad"):
        write(frame.select(picky("value").alias("value")), topics, target)
    # Spark may give the write up while a task is still busy: what that leaves open ends by its timeout.
    assert committed(topics.bootstrap, target, open_ones=True) == []
    write(frame, topics, target)
    assert len(committed(topics.bootstrap, target, open_ones=True)) == 40_000


def test_writes_inside_foreach_batch_are_runs_of_their_own(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    source, one, two = topics.create("in", 1), topics.create("one", 1), topics.create("two", 1)
    rows = [f"row {number:03}" for number in range(60)]
    topics.fill(source, 0, rows)

    def both(frame: DataFrame, _: int) -> None:
        write(frame.select("value"), topics, one)
        write(frame.select("value"), topics, two)

    query: Any = stream_from(spark, topics, source).writeStream.foreachBatch(both)
    finish(query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start())
    assert [committed(topics.bootstrap, name) for name in (one, two)] == [rows, rows]


def test_bad_input_is_one_clear_line(spark: SparkSession, topics: Topics) -> None:
    target = topics.create("out", 1)
    with pytest.raises(
        PySparkException, match="column value has type bigint, but the sink needs binary or string: cast it"
    ):
        write(spark.range(3).selectExpr("id AS value"), topics, target)
    with pytest.raises(PySparkException, match="topic nowhere does not exist: create it, or correct the name"):
        write(spark.range(3).selectExpr("CAST(id AS STRING) AS value"), topics, "nowhere")
    with pytest.raises(PySparkException, match=r"has no option kafka\.retires"):
        write(spark.range(3).selectExpr("CAST(id AS STRING) AS value"), topics, target, **{"kafka.retires": "3"})
