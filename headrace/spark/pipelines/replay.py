"""The replay pipeline: writes a range of the lake, by time or offset, back to a topic, exactly once.

It ends when the range is written. Restarted with the same checkpoint it continues where it was, and does nothing once
it is finished; a second replay needs another checkpoint.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.model.failure import Failure
from headrace.spark.lake.lake import load_lake
from headrace.spark.pipelines.configuration import AVAILABLE_NOW, Section, StreamConfiguration
from headrace.spark.pipelines.query import start
from headrace.spark.pipelines.replay_plan import Plan, make_plan
from headrace.spark.pipelines.run import Run
from headrace.spark.pipelines.topics import FORMAT, Needed, check_topics
from headrace.spark.pipelines.watching import watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLAN = "plan.json"
SUMMARY = "a range of the lake, by time or offset, back into a topic, exactly once"
TEMPLATE = """
pipeline: replay
lake: ./lake
topics: [@TOPIC@]
since: 2026-01-01T00:00:00Z   # records at or after this time; omit for all
until: 2027-01-01T00:00:00Z   # records before this time
to:
  brokers: @BROKER@
  topic: @TOPIC@-replayed     # without it, each record goes to its original topic
checkpoint: ./checkpoints/replay-1
"""


class Target(Section, kw_only=True, frozen=True):
    """Without a topic, each record goes to its original topic."""

    brokers: str = "127.0.0.1:9092"
    topic: str = ""
    keep_partition: bool = False
    keep_timestamp: bool = True
    options: dict[str, str] = msgspec.field(default_factory=dict)


class Config(StreamConfiguration, kw_only=True, frozen=True):
    """`offsets` is topic -> partition -> [first, end]; the end may be omitted."""

    lake: str
    to: Target
    topics: list[str] = msgspec.field(default_factory=list)
    offsets: dict[str, dict[int, list[int]]] = msgspec.field(default_factory=dict)
    since: datetime | None = None
    until: datetime | None = None
    rows_per_step: int = 1_000_000
    trigger: str = AVAILABLE_NOW


def check(config: Config) -> None:
    bad = [topic for topic, parts in config.offsets.items() if any(len(pair) not in (1, 2) for pair in parts.values())]
    if bad:
        raise Failure(f"offsets.{bad[0]}: write each partition as `0: [first, end]` or `0: [first]`")
    if config.trigger != AVAILABLE_NOW:
        raise Failure(f"trigger: a replay has an end, so it is always {AVAILABLE_NOW}: remove the key")
    if config.rows_per_step < 1:
        raise Failure("rows_per_step must be at least 1")


def topics(config: Config) -> list[Needed]:
    return [(config.to.brokers, config.to.topic)] if config.to.topic else []


def shape(config: Config) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(config)
    return {key: plain[key] for key in ("lake", "topics", "offsets", "since", "until", "to")}


def run(config: Config, run: Run) -> dict[str, object]:
    from headrace.spark.pipelines.lake_stream import FORMAT as REPLAY
    from headrace.spark.pipelines.lake_stream import ReplaySource

    plan = settled_plan(config, run)
    run.spark.dataSource.register(ReplaySource)
    plan_text = msgspec.json.encode(plan).decode()
    rows = selected(run.spark.readStream.format(REPLAY).option("plan", plan_text).load(), config.to)
    writer = rows.writeStream.format(FORMAT).option("kafka.bootstrap.servers", config.to.brokers)
    query = start(writer.options(**config.to.options), "replay", config.trigger, run.checkpoint.query("replay"))

    def tell() -> None:
        report = query.current.lastProgress
        if report is not None:
            end = report["sources"][0]["endOffset"]
            step = end["step"] if isinstance(end, dict) else msgspec.json.decode(end)["step"]
            run.reporter.batch(step, plan.steps)

    return {"rows replayed": watch({"replay": query}, run, tell)}


def settled_plan(config: Config, run: Run) -> Plan:
    """The plan made at the first start; the lake may have grown since."""
    known = run.checkpoint.load(PLAN)
    if known is not None:
        return msgspec.convert(known, Plan)
    contents = load_lake(config.lake).contents
    plan = make_plan(
        config.lake, contents, config.topics, config.offsets,
        moment_ms(config.since), moment_ms(config.until), config.rows_per_step,
    )  # fmt: skip
    if not config.to.topic:
        check_topics([(config.to.brokers, topic) for topic in sorted({part.topic for part in plan.ranges})])
    run.checkpoint.save(PLAN, plan)
    return plan


def moment_ms(moment: datetime | None) -> int | None:
    """Epoch milliseconds; a time without a time zone is UTC, like the hours of the lake."""
    if moment is None:
        return None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def selected(rows: DataFrame, target: Target) -> DataFrame:
    """The columns for the sink."""
    from pyspark.sql.functions import lit

    columns = ["key", "value", "headers"]
    columns += ["partition"] * target.keep_partition + ["timestamp"] * target.keep_timestamp
    where = lit(target.topic).alias("topic") if target.topic else rows["topic"]
    return rows.select(where, *columns)
