"""Pipelines run in the shared session, and what they left: in topics by a stock client, in lakes by pyarrow."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from headrace.spark.lake.lake import load_lake
from headrace.spark.pipelines.catalogue import read_configuration
from headrace.spark.pipelines.launch import launch
from headrace.spark.pipelines.progress import StreamFacts

PATIENCE_S = 60.0


class Listener:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.streams: list[tuple[str, StreamFacts]] = []
        self.batches: list[tuple[int, int]] = []
        self.tables: list[tuple[list[str], list[list[object]]]] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def stream(self, query: str, facts: StreamFacts) -> None:
        self.streams.append((query, facts))

    def batch(self, done: int, total: int) -> None:
        self.batches.append((done, total))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        self.tables.append((list(columns), [list(row) for row in rows]))


def run(spark: SparkSession, document: dict[str, Any], listener: Listener | None = None) -> dict[str, object]:
    """Run a pipeline to its end in the shared session."""
    config = read_configuration(yaml.safe_dump(document), "test.yaml")
    return launch(config, spark=spark, reporter=listener or Listener())


def messages(bootstrap: str, topic: str, partitions: int) -> list[Any]:
    """Every committed record of a topic, in the order of each partition, read by a stock client."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "judge", "enable.auto.commit": False,
        "isolation.level": "read_committed", "enable.partition.eof": True,
    })  # fmt: skip
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        found: list[Any] = []
        ended: set[int] = set()
        give_up_at = time.monotonic() + PATIENCE_S
        while len(ended) < partitions:
            assert time.monotonic() < give_up_at, f"{topic} was not read to its end within {PATIENCE_S:g} s"
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is None:
                found.append(message)
            else:  # the end of a partition
                ended.add(message.partition())
        return found
    finally:
        consumer.close()


def lake_offsets(lake: Path) -> dict[tuple[str, int], list[int]]:
    """The offsets in the files that the lake's manifest names, sorted; and they are what the manifest says."""
    contents = load_lake(str(lake)).contents
    found: dict[tuple[str, int], list[int]] = {}
    for file in contents.files.values():
        table = pq.ParquetFile(lake / file.name).read(columns=["partition", "offset"])
        rows = list(zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True))
        assert len(rows) == file.rows
        for span in file.spans:
            own = [offset for partition, offset in rows if partition == span.partition]
            assert (min(own), max(own) + 1, len(own)) == (span.start, span.end, span.rows)
        for partition, offset in rows:
            found.setdefault((file.topic, partition), []).append(offset)
    return {key: sorted(offsets) for key, offsets in found.items()}


def twice(offsets: Sequence[int]) -> list[int]:
    return [offset for offset, count in Counter(offsets).items() if count > 1]
