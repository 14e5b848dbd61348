"""The dedup pipeline: copies a topic without duplicates to another topic, exactly once.

Duplicates are records with the same `headrace.id` header, the same key, or the same value of an expression, within a
duration of event time. A record without an id or key is never a duplicate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.spark.pipelines.configuration import SourceSection, StreamConfiguration, TopicTarget, span_ms, spark_span
from headrace.spark.pipelines.query import start
from headrace.spark.pipelines.run import Run
from headrace.spark.pipelines.topics import (
    Needed,
    check_source,
    read_stream,
    source_topics,
    target_topics,
    to_topic,
)
from headrace.spark.pipelines.watching import watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SUMMARY = "a topic without duplicates, by headrace.id, key or expression within a duration"
TEMPLATE = """
pipeline: dedup
source:
  brokers: @BROKER@
  topics: [@TOPIC@]
by: id                      # id (the header headrace.id), key, or an expression such as sha2(value, 256)
within: 1h                  # records further apart than this are not duplicates
to:
  topic: @TOPIC@-once
checkpoint: ./checkpoints/dedup
trigger: 5s
"""

KNOWN = {
    "id": "try_element_at(filter(headers, h -> h.key = 'headrace.id'), -1).value",
    "key": "key",
}


class Config(StreamConfiguration, kw_only=True, frozen=True):
    source: SourceSection
    to: TopicTarget
    by: str = "id"
    within: str = "1h"


def check(config: Config) -> None:
    span_ms(config.within, "within")
    check_source(config.source)


def topics(config: Config) -> list[Needed]:
    return source_topics(config.source) + target_topics(config.to, config.source.brokers)


def shape(config: Config) -> dict[str, Any]:
    return {
        "topics": config.source.topics, "pattern": config.source.pattern, "by": config.by, "within": config.within,
        "to": config.to.topic,
    }  # fmt: skip


def run(config: Config, run: Run) -> dict[str, object]:
    rows = deduplicated(read_stream(run.spark, config.source), config.by, spark_span(config.within, "within"))
    writer = to_topic(rows.select("key", "value", "headers", "timestamp"), config.to, config.source.brokers)
    query = start(writer, "dedup", config.trigger, run.checkpoint.query("dedup"))
    return {"rows taken in": watch({"dedup": query}, run)}


def deduplicated(rows: DataFrame, by: str, within: str) -> DataFrame:
    from pyspark.sql import functions as f

    identity = f.expr(KNOWN.get(by, by)).cast("string")
    # Nulls would be equal: a record without an id is identified by its topic, partition and offset.
    alone = f.concat_ws("/", f.lit("offset"), "topic", "partition", "offset")
    known = rows.withColumn("identity", f.concat_ws("/", f.lit("id"), identity))
    named = known.withColumn("identity", f.when(identity.isNull(), alone).otherwise(f.col("identity")))
    return named.withWatermark("timestamp", within).dropDuplicatesWithinWatermark(["identity"])
