"""The dlq-report pipeline: reports dead letters by cause, topic and time as a page with plots, and redrives them.

The report is one batch read. A redrive is a stream that ends when it has caught up: the checkpoint stores its offsets,
so each dead letter is redriven once, and a second run processes only those that came since.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.model.failure import Failure
from headrace.spark.lake.storage import open_storage
from headrace.spark.pipelines.configuration import AVAILABLE_NOW, Configuration, Section, SourceSection
from headrace.spark.pipelines.dead_letters import UNKNOWN, dead_letters, revived
from headrace.spark.pipelines.query import start
from headrace.spark.pipelines.report_page import Letters, folded, page
from headrace.spark.pipelines.run import Run
from headrace.spark.pipelines.topics import (
    FORMAT,
    Needed,
    check_source,
    read_batch,
    read_stream,
    source_topics,
)
from headrace.spark.pipelines.watching import job_progress, watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_CAUSES = 200
EXAMPLES = 20
SUMMARY = "dead letters by cause, topic and time as a page with plots; and redrive of a selection"
TEMPLATE = """
pipeline: dlq-report
source:
  brokers: @BROKER@
  topics: [@TOPIC@]         # the dead letter topics
page: ./dead-letters.html
# To send a selection back to its topic of origin, give a condition, and a checkpoint that stores the progress:
# redrive:
#   where: cause like '%timeout%' and redriven < 3
#   topic: orders           # without it, each record goes to its topic of origin
checkpoint: ./checkpoints/redrive
"""


class Redrive(Section, kw_only=True, frozen=True):
    """`where` is a condition of Spark SQL over cause, origin, failed_group, redriven, key, value, timestamp."""

    where: str
    topic: str = ""


class Config(Configuration, kw_only=True, frozen=True):
    source: SourceSection
    page: str = ""
    redrive: Redrive | None = None
    trigger: str = AVAILABLE_NOW


def check(config: Config) -> None:
    if not config.page and config.redrive is None:
        raise Failure("nothing to do: give the key page, the key redrive, or both")
    if config.redrive is not None and not config.checkpoint:
        raise Failure("the key checkpoint is missing: a redrive needs a folder to store its progress")
    check_source(config.source)


def topics(config: Config) -> list[Needed]:
    target = config.redrive.topic if config.redrive else ""
    return source_topics(config.source) + ([(config.source.brokers, target)] if target else [])


def shape(config: Config) -> dict[str, Any]:
    redrive = config.redrive
    return {
        "topics": config.source.topics,
        "pattern": config.source.pattern,
        "redrive": {"where": redrive.where, "topic": redrive.topic} if redrive else None,
    }


def run(config: Config, run: Run) -> dict[str, object]:
    facts: dict[str, object] = {}
    if config.page:
        with job_progress(run):
            letters = counted(dead_letters(read_batch(run.spark, config.source)))
        made_at = datetime.fromtimestamp(run.clock.now_ms() / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
        title = f"Dead letters of {', '.join(config.source.topics) or config.source.pattern}"
        folder, _, name = config.page.rpartition("/")
        open_storage(folder or ".").put(name, page(title, made_at, letters).encode())
        facts |= {"dead letters": letters.total, "causes": len(letters.by_cause), "page": config.page}
    if config.redrive is not None:
        facts["dead letters looked at"] = redriven(config, config.redrive, run)
    return facts


def counted(letters: DataFrame) -> Letters:
    """The counts of the report; few rows, however large the topic."""
    from pyspark.sql import functions as f

    letters = letters.withColumn("hour", f.date_format("timestamp", "yyyy-MM-dd HH:00")).cache()
    try:
        causes = [(row["cause"], row["count"]) for row in letters.groupBy("cause").count().collect()]
        shown = folded(causes)
        names = {cause for cause, _ in shown}
        origins = [(row["origin"], row["count"]) for row in letters.groupBy("origin").count().collect()]
        hours: dict[tuple[str, str], int] = {}
        for row in letters.groupBy("hour", "cause").count().collect():
            key = row["hour"], row["cause"] if row["cause"] in names else shown[-1][0]
            hours[key] = hours.get(key, 0) + row["count"]
        latest = letters.orderBy(f.desc("timestamp")).limit(EXAMPLES).select(
            f.col("timestamp").cast("string").alias("time"), "origin", "cause",
            f.col("key").cast("string").alias("key"), f.left(f.col("value").cast("string"), f.lit(200)).alias("value"),
        )  # fmt: skip
        examples = [row.asDict() for row in latest.collect()]
    finally:
        letters.unpersist()
    by_hour = [(hour, cause, count) for (hour, cause), count in sorted(hours.items())]
    return Letters(sum(count for _, count in causes), shown, folded(origins, MOST_CAUSES), by_hour, examples)


def redriven(config: Config, redrive: Redrive, run: Run) -> int:
    """Redrive the selection; returns how many dead letters were read."""
    from pyspark.errors import AnalysisException

    letters = dead_letters(read_stream(run.spark, config.source))
    try:
        selected = letters.where(redrive.where)
    except AnalysisException as error:
        raise Failure(f"redrive.where: {error.getMessage().splitlines()[0]}") from None
    if not redrive.topic:
        # Without an origin there is nowhere to send it: it is skipped, and stays in the report.
        selected = selected.where(f"origin != '{UNKNOWN}'")
    writer = revived(selected, redrive.topic).writeStream.format(FORMAT)
    writer = writer.option("kafka.bootstrap.servers", config.source.brokers)
    return watch({"redrive": start(writer, "redrive", config.trigger, run.checkpoint.query("redrive"))}, run)
