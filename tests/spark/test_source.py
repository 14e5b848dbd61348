"""The source on real Spark: batches, SQL, filters, streams of every trigger, restarts, and errors as people see them.

What each option means in detail is proven without Spark in tests/broker/spark; here stands what only Spark can show.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit
from pyspark.sql.streaming import StreamingQuery

from headrace.testing.local_broker import LocalBroker
from tests.clients.patience import until
from tests.spark.topics import PATIENCE_S, Topics

START_MS = 1_700_000_000_000
QUERY_PATIENCE_S = 180


def read(spark: SparkSession, bootstrap: str, schema: str | None = None, **options: object) -> DataFrame:
    reader = spark.read.format("headrace").option("kafka.bootstrap.servers", bootstrap)
    if schema:
        reader = reader.schema(schema)
    return reader.options(**{name.replace("__", "."): str(value) for name, value in options.items()}).load()


class Collector:
    """A query whose micro-batches are kept, row by row, as (partition, offset, value)."""

    def __init__(self, spark: SparkSession, bootstrap: str, checkpoint: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._checkpoint = checkpoint
        self.batches: list[list[tuple[int, int, str]]] = []

    def start(self, trigger: dict[str, Any], **options: object) -> StreamingQuery:
        named = {name.replace("__", "."): str(value) for name, value in options.items()}
        stream = self._spark.readStream.format("headrace").option("kafka.bootstrap.servers", self._bootstrap)
        return (
            stream.options(**named)
            .load()
            .writeStream.foreachBatch(self._keep)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(**trigger)
            .start()
        )

    def drain(self, **options: object) -> StreamingQuery:
        """Read all that is there now, and stop."""
        query = self.start({"availableNow": True}, **options)
        assert query.awaitTermination(QUERY_PATIENCE_S), "the query did not come to the end of the topics in time"
        return query

    def _keep(self, batch: DataFrame, _number: int) -> None:
        rows = batch.select("partition", "offset", col("value").cast("string")).collect()
        self.batches.append([tuple(row) for row in rows])

    @property
    def values(self) -> list[str]:
        return sorted(value for batch in self.batches for _, _, value in batch)


def test_batches_sql_and_filters(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create("orders", 3, retention_ms="-1")
    for partition in range(3):
        topics.send(
            topic,
            partition,
            [
                {
                    "value": f"p{partition}-{turn}",
                    "timestamp": START_MS + 1000 * turn,
                    "headers": [("h", b"x"), ("n", None)],
                }
                for turn in range(50)
            ],
        )

    whole = read(spark, topics.bootstrap, subscribe=topic, includeHeaders="true")
    assert [(field.name, field.dataType.simpleString()) for field in whole.schema.fields] == [
        ("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int"), ("offset", "bigint"),
        ("timestamp", "timestamp"), ("timestampType", "int"), ("headers", "array<struct<key:string,value:binary>>"),
    ]  # fmt: skip
    first = whole.where("partition = 1").orderBy("offset").first()
    assert first is not None
    assert (first.value, first.topic, first.offset, first.key) == (b"p1-0", topic, 0, None)
    assert first.timestamp == datetime.datetime.fromtimestamp(START_MS / 1000, datetime.UTC).replace(tzinfo=None)
    assert [tuple(header) for header in first.headers] == [("h", b"x"), ("n", None)]

    narrow = read(spark, topics.bootstrap, "value BINARY, partition INT", subscribe=topic)
    assert narrow.columns == ["value", "partition"]
    assert narrow.groupBy("partition").count().orderBy("partition").collect() == [(0, 50), (1, 50), (2, 50)]

    spark.sql(
        f"CREATE TEMPORARY VIEW orders USING headrace "
        f"OPTIONS (`kafka.bootstrap.servers` '{topics.bootstrap}', subscribe '{topic}')"
    )
    try:
        by_sql = spark.sql("SELECT CAST(value AS STRING) FROM orders WHERE partition = 2 AND offset >= 48").collect()
        assert sorted(row[0] for row in by_sql) == ["p2-48", "p2-49"]
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        late = datetime.datetime.fromtimestamp((START_MS + 47_500) / 1000, datetime.UTC)
        pushed = read(spark, topics.bootstrap, subscribe=topic).where(
            (col("timestamp") >= lit(late)) & col("partition").isin(0, 2) & (col("offset") < 49)
        )
        assert sorted(bytes(row.value).decode() for row in pushed.collect()) == ["p0-48", "p2-48"]
        assert pushed.rdd.getNumPartitions() == 2
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
        spark.catalog.dropTempView("orders")

    empty = read(spark, topics.bootstrap, subscribe=topics.create("empty"))
    assert empty.count() == 0


def test_a_query_is_stopped_started_and_restarted_while_topics_grow(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create("orders", 2)
    topics.fill(topic, 0, [f"a{turn}" for turn in range(30)])
    seen = Collector(spark, topics.bootstrap, tmp_path / "checkpoint")
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 20, "group.id": topic}
    first = seen.drain(**options)
    assert [len(batch) for batch in seen.batches] == [20, 10]
    assert first.exception() is None
    assert topics.committed(topic, topic, 1) == [30]

    topics.grow(topic, 3)
    topics.fill(topic, 2, ["grown"])
    topics.fill(topic, 1, ["b0"])
    second = seen.start({"processingTime": "100 milliseconds"}, **options)
    try:
        second.processAllAvailable()
        topics.fill(topic, 0, ["late"])
        second.processAllAvailable()
        progress = second.lastProgress
        assert progress is not None
        assert json.loads(progress["sources"][0]["endOffset"]) == {topic: {"0": 31, "1": 1, "2": 1}}
        told = "the group has the query's progress"
        until(told, lambda: topics.committed(topic, topic, 3) == [31, 1, 1], PATIENCE_S, pause_s=0.5)
    finally:
        second.stop()
    seen.drain(**options)
    assert seen.values == sorted([*(f"a{turn}" for turn in range(30)), "b0", "grown", "late"])


def test_a_broker_that_restarts_in_the_middle_of_a_query_costs_nothing(
    spark: SparkSession, own_broker: Callable[[], LocalBroker], tmp_path: Path
) -> None:
    broker = own_broker()
    topics = Topics(broker.bootstrap, "steady")
    topic = topics.create("orders", 2, headrace_flush="fsync")
    seen = Collector(spark, broker.bootstrap, tmp_path / "checkpoint")
    query = seen.start({"processingTime": "0 seconds"}, subscribe=topic, startingOffsets="earliest")
    try:
        for turn in range(3):
            topics.fill(topic, turn % 2, [f"{turn}-{number}" for number in range(100)])
            broker.restart()
            query.processAllAvailable()
    finally:
        query.stop()
    assert seen.values == sorted(f"{turn}-{number}" for turn in range(3) for number in range(100))


def test_errors_reach_people_as_one_clear_line(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create("orders")
    topics.fill(topic, 0, [str(turn) for turn in range(10)])

    def complaint(work: Callable[[], object]) -> str:
        with pytest.raises(PySparkException) as refused:
            work()
        return str(refused.value)

    bootstrap = topics.bootstrap
    assert "topic nowhere does not exist: create it" in complaint(
        lambda: read(spark, bootstrap, subscribe="nowhere").count()
    )
    assert "no option subscribr: did you mean subscribe?" in complaint(
        lambda: read(spark, bootstrap, subscribr=topic).count()
    )
    assert "column value has type binary, and the schema says string" in complaint(
        lambda: read(spark, bootstrap, "value STRING", subscribe=topic).count()
    )
    assert "the source has no column valeu" in complaint(
        lambda: read(spark, bootstrap, "valeu BINARY", subscribe=topic).count()
    )

    seen = Collector(spark, bootstrap, tmp_path / "checkpoint")
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 4}
    query = seen.start({"once": True}, subscribe=topic, startingOffsets=json.dumps({topic: {"0": 4}}))
    assert query.awaitTermination(QUERY_PATIENCE_S)
    topics.fill(topic, 0, ["10", "11"])
    topics.cut(topic, 0, 11)
    with pytest.raises(PySparkException) as lost:
        seen.drain(**options)
    assert f"partition 0 of topic {topic} was to be read from offset 10, but it begins at offset 11" in str(lost.value)
    assert "failOnDataLoss" in str(lost.value)
    seen.drain(**options, failOnDataLoss="false")
    assert seen.values == sorted(["4", "5", "6", "7", "8", "9", "11"])
