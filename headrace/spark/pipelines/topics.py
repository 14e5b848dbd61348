"""Topics of pipelines: their options for the source and the sink, and a check that they exist.

Called by every pipeline. Invariant: a missing topic is an error with its name before Spark runs any job.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.client.metadata import Cluster
from headrace.model.failure import Failure
from headrace.spark.pipelines.configuration import SourceSection, TopicTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FORMAT = "headrace"
PATIENCE_S = 10.0


Needed = tuple[str, str]  # brokers, and a topic that must exist there


def check_source(source: SourceSection, key: str = "source") -> None:
    """Check that the configuration names topics by list or by pattern, not both."""
    if bool(source.topics) == bool(source.pattern):
        raise Failure(f"{key} needs either topics (a list of names) or pattern (a regular expression)")


def source_topics(source: SourceSection) -> list[Needed]:
    return [(source.brokers, name) for name in source.topics]


def target_topics(target: TopicTarget, source_brokers: str) -> list[Needed]:
    return [(target.brokers or source_brokers, target.topic)]


def check_topics(needed: Iterable[Needed]) -> None:
    """Raise a Failure that names the missing topics."""
    by_brokers: dict[str, list[str]] = {}
    for brokers, name in needed:
        by_brokers.setdefault(brokers, []).append(name)
    for brokers, names in by_brokers.items():
        with Cluster(brokers.split(","), "headrace-pipeline", patience_s=PATIENCE_S) as cluster:
            found = cluster.topics(names)
        missing = [name for name in names if name not in found]
        if missing:
            raise Failure(
                f"topic {', '.join(missing)} does not exist at {brokers}: correct the name, or create it with "
                f"`headrace topic create {missing[0]}`"
            )


def source_options(source: SourceSection) -> dict[str, str]:
    subscription = {"subscribe": ",".join(source.topics)} if source.topics else {"subscribePattern": source.pattern}
    return {
        "kafka.bootstrap.servers": source.brokers,
        "includeHeaders": "true",
        # A pipeline must not process records of aborted transactions.
        "kafka.isolation.level": "read_committed",
        "startingOffsets": source.starting,
        **subscription,
        **source.options,
    }


def read_stream(spark: SparkSession, source: SourceSection) -> DataFrame:
    return spark.readStream.format(FORMAT).options(**source_options(source)).load()


def read_batch(spark: SparkSession, source: SourceSection) -> DataFrame:
    return spark.read.format(FORMAT).options(**source_options(source)).load()


def target_options(target: TopicTarget, source_brokers: str) -> dict[str, str]:
    brokers = target.brokers or source_brokers
    return {"kafka.bootstrap.servers": brokers, "topic": target.topic, **target.options}


def to_topic(rows: DataFrame, target: TopicTarget, source_brokers: str) -> DataStreamWriter:
    return rows.writeStream.format(FORMAT).options(**target_options(target, source_brokers))
