"""Dead letters as columns: their origin, the cause and time of the failure.

Uses Spark's own functions only; called by the report and by redrive. The facts are in headers, written by the program
that sent the record to the dead letter topic: Kafka's share groups (KIP-1191), Kafka Connect, Spring. Invariant: a
record without such headers is a dead letter of unknown cause and origin, never skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# The first header that exists counts.
ORIGIN_TOPIC = ("__dlq.errors.topic", "__connect.errors.topic", "kafka_dlt-original-topic")
CAUSE = (
    "__dlq.errors.message",
    "__connect.errors.exception.message",
    "__connect.errors.exception.class.name",
    "kafka_dlt-exception-message",
    "kafka_dlt-exception-fqcn",
)
GROUP = ("__dlq.errors.group", "__connect.errors.connector.name", "kafka_dlt-original-consumer-group")
PREFIXES = ("__dlq.errors.", "__connect.errors.", "kafka_dlt-", "headrace.redriven")
REDRIVEN = "headrace.redriven"  # how many times a record has been redriven to its topic of origin
UNKNOWN = "unknown"


def dead_letters(rows: DataFrame) -> DataFrame:
    """The rows with the columns cause, origin, failed_group and redriven added."""
    from pyspark.sql import functions as f

    redriven = f.coalesce(_header((REDRIVEN,)).try_cast("int"), f.lit(0))
    return rows.withColumns({
        "cause": f.coalesce(_header(CAUSE), f.lit(UNKNOWN)),
        "origin": f.coalesce(_header(ORIGIN_TOPIC), f.lit(UNKNOWN)),
        "failed_group": f.coalesce(_header(GROUP), f.lit(UNKNOWN)),
        "redriven": redriven,
    })  # fmt: skip


def revived(letters: DataFrame, to_topic: str) -> DataFrame:
    """Dead letters as records to send: without the headers about the failure, with the redrive count incremented."""
    from pyspark.sql import functions as f

    def own(header: Column) -> Column:
        alien = [header["key"].startswith(prefix) for prefix in PREFIXES]
        kept = ~alien[0]
        for one in alien[1:]:
            kept = kept & ~one
        return kept

    count = f.struct(f.lit(REDRIVEN).alias("key"), (f.col("redriven") + 1).cast("string").cast("binary").alias("value"))
    kept = f.coalesce(f.filter("headers", own), f.array().cast("array<struct<key:string,value:binary>>"))
    where = f.lit(to_topic) if to_topic else f.col("origin")
    return letters.select(
        where.alias("topic"), "key", "value", f.concat(kept, f.array(count)).alias("headers"), "timestamp"
    )


def _header(names: tuple[str, ...]) -> Column:
    """The value, as text, of the first of these headers that a record has."""
    from pyspark.sql import functions as f

    def value(name: str) -> Column:
        return f.expr(f"try_element_at(filter(headers, h -> h.key = '{name}'), -1).value").cast("string")

    return f.coalesce(*[value(name) for name in names])
