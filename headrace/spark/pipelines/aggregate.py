"""The aggregate pipeline: aggregates log lines in windows of event time, into a topic and Parquet files.

Each target is its own query, with its own checkpoint and state: so each is exactly once by itself, and neither waits
for the other. A window is emitted once, when the watermark has passed its end; later lines of it are dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from headrace.model.failure import Failure
from headrace.spark.pipelines.configuration import Section, SourceSection, StreamConfiguration, TopicTarget, span_ms
from headrace.spark.pipelines.measures import Measure, check_measures, column
from headrace.spark.pipelines.parsers import Parse, check_parse, field_types, parsed
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

SUMMARY = "log lines (JSON, logfmt, access log) to counts, rates, percentiles and top values in windows"
TEMPLATE = """
pipeline: aggregate
source:
  brokers: @BROKER@
  topics: [@TOPIC@]
parse:
  format: access-log        # or json or logfmt, with `fields: {path: string, status: int}`
time: time                  # the field with the event time; without it, the record's timestamp
window: 1m
watermark: 2m               # the most that a line may be late
by: [status]
measures:
  requests: count
  per_second: rate
  p95_seconds: {percentile: 0.95, of: seconds}
  bytes: {sum: bytes}
  paths: {top: 3, of: path}
to:
  topic: {topic: @TOPIC@-aggregated}
  parquet: {path: ./aggregated}
checkpoint: ./checkpoints/aggregate
trigger: 10s
"""


class ParquetTarget(Section, kw_only=True, frozen=True):
    path: str


class Targets(Section, kw_only=True, frozen=True):
    topic: TopicTarget | None = None
    parquet: ParquetTarget | None = None


class Config(StreamConfiguration, kw_only=True, frozen=True):
    source: SourceSection
    parse: Parse
    measures: dict[str, Measure]
    to: Targets
    time: str = ""
    where: str = ""
    window: str = "1m"
    slide: str = ""
    watermark: str = "1m"
    by: list[str] = msgspec.field(default_factory=list)


def check(config: Config) -> None:
    check_parse(config.parse, "parse")
    fields = field_types(config.parse)
    check_measures(config.measures, fields)
    for key in ("window", "slide", "watermark"):
        text = getattr(config, key)
        if text:
            span_ms(text, key)
    unknown = [name for name in config.by if name not in fields]
    if unknown:
        raise Failure(f"by: the lines have no field {unknown[0]}: choose from {', '.join(sorted(fields))}")
    if config.time and fields.get(config.time) != "timestamp":
        raise Failure(f"time: {config.time} must be a field of type timestamp")
    twice = sorted(set(config.by) & set(config.measures))
    if twice:
        raise Failure(f"measures.{twice[0]}: the name is used in `by` already: choose another")
    if config.to.topic is None and config.to.parquet is None:
        raise Failure("to needs topic, parquet or both")
    check_source(config.source)


def topics(config: Config) -> list[Needed]:
    target = config.to.topic
    return source_topics(config.source) + (target_topics(target, config.source.brokers) if target else [])


def shape(config: Config) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(config)
    keys = ("parse", "measures", "time", "where", "window", "slide", "watermark", "by")
    return {"topics": config.source.topics, "pattern": config.source.pattern} | {key: plain[key] for key in keys}


def run(config: Config, run: Run) -> dict[str, object]:
    rows = aggregated(read_stream(run.spark, config.source), config)
    queries = {}
    if config.to.topic is not None:
        writer = to_topic(as_records(rows, config), config.to.topic, config.source.brokers).outputMode("append")
        queries["to-topic"] = start(writer, "to-topic", config.trigger, run.checkpoint.query("to-topic"))
    if config.to.parquet is not None:
        writer = rows.writeStream.format("parquet").option("path", config.to.parquet.path).outputMode("append")
        queries["to-parquet"] = start(writer, "to-parquet", config.trigger, run.checkpoint.query("to-parquet"))
    total = watch(queries, run)
    return {"lines taken in": total // len(queries)}


def aggregated(rows: DataFrame, config: Config) -> DataFrame:
    """window_start, window_end, the fields of `by`, and the measures."""
    from pyspark.sql import functions as f

    lines = parsed(rows, config.parse).where("parsed")
    moment = f.col(f"`{config.time}`") if config.time else f.col("timestamp")
    lines = lines.withColumn("event_time", moment).where("event_time is not null")
    if config.where:
        lines = lines.where(config.where)
    window_ms = span_ms(config.window, "window")
    slide = f"{span_ms(config.slide, 'slide')} milliseconds" if config.slide else None
    window = f.window("event_time", f"{window_ms} milliseconds", slide)
    watermark = f"{span_ms(config.watermark, 'watermark')} milliseconds"
    measures = [column(name, measure, window_ms) for name, measure in config.measures.items()]
    fields = [f.col(f"`{name}`") for name in config.by]
    grouped = lines.withWatermark("event_time", watermark).groupBy(window.alias("window"), *fields).agg(*measures)
    return grouped.select(
        f.col("window.start").alias("window_start"),
        f.col("window.end").alias("window_end"),
        *[f.col(f"`{name}`") for name in (*config.by, *config.measures)],
    )


def as_records(rows: DataFrame, config: Config) -> DataFrame:
    """Rows as records: the group as key, so that its windows stay in order; all columns as JSON in the value."""
    from pyspark.sql import functions as f

    names = [f.col(f"`{name}`") for name in config.by]
    key = f.to_json(f.struct(*names)) if names else f.lit(None).cast("string")
    return rows.select(key.cast("binary").alias("key"), f.to_json(f.struct("*")).cast("binary").alias("value"))
