"""Spark's own Kafka connector against headrace: batch, streaming and real-time mode, in one Spark session.

Run by the compatibility run as a process of its own, with the broker's address as its argument; ends with an error at
the first story that fails. The connector is the JVM's: its consumers and producers are Kafka's Java clients.
"""

from __future__ import annotations

import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from bench.spark.connector import jars, session
from tests.clients.patience import until

DEADLINE_S = 120.0


class Stories:
    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._folder = folder
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def tell(self) -> None:
        for story in (self.batch, self.streaming, self.real_time):
            story()
            print(f"STORY {story.__name__} PASS", flush=True)

    def batch(self) -> None:
        """What a batch writes, with keys and headers, a batch reads."""
        topic = self._topic(3)
        rows = self._spark.range(1000).selectExpr(
            "CAST(id AS STRING) AS key",
            "concat('v', id) AS value",
            "array(named_struct('key', 'h', 'value', CAST('x' AS BINARY))) AS headers",
        )
        rows.write.format("kafka").options(**self._to(topic)).option("includeHeaders", "true").save()
        read = self._spark.read.format("kafka").options(**self._from(topic)).option("includeHeaders", "true").load()
        assert values(read) == sorted(f"v{number}" for number in range(1000))
        first = read.where("CAST(key AS STRING) = '7'").first()
        assert first is not None
        assert [tuple(header) for header in first.headers] == [("h", b"x")]
        later = read.where("offset >= 5").count()
        assert later == 1000 - 15, f"{later} records stand at offset 5 or later"

    def streaming(self) -> None:
        """A stream copies a topic in two runs from one checkpoint: every record once."""
        source, target = self._topic(2), self._topic(2)
        for part in (range(500), range(500, 800)):
            self._produce(source, [f"{number}" for number in part])
            stream = self._spark.readStream.format("kafka").options(**self._from(source))
            query = (
                stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "200").load()
                .writeStream.format("kafka").options(**self._to(target))
                .option("checkpointLocation", str(self._folder / "copy")).trigger(availableNow=True).start()
            )  # fmt: skip
            assert query.awaitTermination(DEADLINE_S), "the copy did not end"
        read = self._spark.read.format("kafka").options(**self._from(target)).load()
        assert values(read) == sorted(f"{number}" for number in range(800))

    def real_time(self) -> None:
        """Records pass through a query in real-time mode while it runs."""
        source, target = self._topic(1), self._topic(1)
        stream = (
            self._spark.readStream.format("kafka").options(**self._from(source)).option("startingOffsets", "earliest")
        )
        query = (
            stream.load().selectExpr("key", "value")
            .writeStream.format("kafka").options(**self._to(target)).outputMode("update")
            .option("checkpointLocation", str(self._folder / "real-time")).trigger(realTime="10 seconds").start()
        )  # fmt: skip
        try:
            self._produce(source, ["a", "b", "c"])

            def arrived() -> bool:
                assert query.exception() is None, str(query.exception())
                read = self._spark.read.format("kafka").options(**self._from(target)).load()
                return values(read) == ["a", "b", "c"]

            until("three records passed in real time", arrived, DEADLINE_S, pause_s=0.5)
        finally:
            query.stop()

    # --- topics -----------------------------------------------------------------------------------------------------

    def _topic(self, partitions: int) -> str:
        topic = f"spark.connector.{uuid.uuid4().hex[:8]}"
        self._admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
        return topic

    def _produce(self, topic: str, sent: Sequence[str]) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap})
        for value in sent:
            producer.produce(topic, value)
        assert producer.flush(30) == 0

    def _from(self, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._bootstrap, "subscribe": topic}

    def _to(self, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._bootstrap, "topic": topic}


def values(rows: DataFrame) -> list[str]:
    return sorted(row[0] for row in rows.selectExpr("CAST(value AS STRING)").collect())


def main() -> None:
    spark = session(jars(), "1g")
    with tempfile.TemporaryDirectory(prefix="headrace-connector-") as folder:
        Stories(spark, sys.argv[1], Path(folder)).tell()
    spark.stop()


if __name__ == "__main__":
    main()
