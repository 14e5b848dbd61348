"""The sql pipeline: runs one Spark SQL statement over topics as tables, into a topic, Parquet files or the console.

As a batch it reads the current contents of the topics; as a stream it runs continuously. A table of a topic has the
columns of the source, and with `parse` a column for each field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from headrace.model.failure import Failure
from headrace.spark.lake.storage import open_storage
from headrace.spark.pipelines.aggregate import ParquetTarget
from headrace.spark.pipelines.configuration import Configuration, Section, SourceSection, TopicTarget
from headrace.spark.pipelines.parsers import Parse, check_parse, parsed
from headrace.spark.pipelines.query import start
from headrace.spark.pipelines.run import Run
from headrace.spark.pipelines.topics import (
    FORMAT,
    Needed,
    check_source,
    read_batch,
    read_stream,
    source_topics,
    target_options,
    target_topics,
    to_topic,
)
from headrace.spark.pipelines.watching import job_progress, watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_ROWS = 1000
SUMMARY = "one statement of Spark SQL over topics as tables, to a topic, to Parquet or to the console"
TEMPLATE = """
pipeline: sql
tables:
  lines:
    source:
      brokers: @BROKER@
      topics: [@TOPIC@]
    parse: {format: access-log}   # omit for raw records: key, value, topic, partition, offset, timestamp
statement: |
  select status, count(*) as requests from lines group by status order by requests desc
to:
  console: {}                     # or topic: {topic: NAME}, or parquet: {path: FOLDER}
"""


class TableSection(Section, kw_only=True, frozen=True):
    source: SourceSection
    parse: Parse | None = None


class Console(Section, kw_only=True, frozen=True):
    """Print rows in the terminal; at most `rows` of each result."""

    rows: int = MOST_ROWS


class Targets(Section, kw_only=True, frozen=True):
    topic: TopicTarget | None = None
    parquet: ParquetTarget | None = None
    console: Console | None = None


class Config(Configuration, kw_only=True, frozen=True):
    tables: dict[str, TableSection]
    to: Targets
    statement: str = ""
    file: str = ""
    mode: Literal["batch", "stream"] = "batch"
    output: Literal["append", "update", "complete"] = "append"


def check(config: Config) -> None:
    if bool(config.statement) == bool(config.file):
        raise Failure("give exactly one of statement (the SQL) and file (its path)")
    if sum(target is not None for target in (config.to.topic, config.to.parquet, config.to.console)) != 1:
        raise Failure("to needs exactly one target: topic, parquet or console")
    if not config.tables:
        raise Failure("tables is empty: name at least one, with its source")
    if config.mode == "stream" and not config.checkpoint:
        raise Failure("the key checkpoint is missing: a stream needs a folder to store its progress")
    for name, table in config.tables.items():
        check_source(table.source, f"tables.{name}.source")
        if table.parse is not None:
            check_parse(table.parse, f"tables.{name}.parse")


def topics(config: Config) -> list[Needed]:
    target = config.to.topic
    needed = [one for table in config.tables.values() for one in source_topics(table.source)]
    return needed + (target_topics(target, brokers_of(config)) if target else [])


def shape(config: Config) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(config)
    return {"statement": statement_of(config), "tables": plain["tables"], "output": config.output}


def run(config: Config, run: Run) -> dict[str, object]:
    stream = config.mode == "stream"
    for name, table in config.tables.items():
        rows = (read_stream if stream else read_batch)(run.spark, table.source)
        (parsed(rows, table.parse) if table.parse else rows).createOrReplaceTempView(name)
    result = run.spark.sql(statement_of(config))
    return streamed(result, config, run) if stream else written(result, config, run)


def written(result: DataFrame, config: Config, run: Run) -> dict[str, object]:
    """Run the statement once, as a batch."""
    with job_progress(run):
        if config.to.topic is not None:
            options = target_options(config.to.topic, brokers_of(config))
            as_records(result).write.format(FORMAT).options(**options).mode("append").save()
            return {"written to topic": config.to.topic.topic}
        if config.to.parquet is not None:
            result.write.mode("append").parquet(config.to.parquet.path)
            return {"written to": config.to.parquet.path}
        return {"rows": show(result, config, run)}


def streamed(result: DataFrame, config: Config, run: Run) -> dict[str, object]:
    """Run the statement as a stream."""
    if config.to.topic is not None:
        writer = to_topic(as_records(result), config.to.topic, brokers_of(config))
    elif config.to.parquet is not None:
        writer = result.writeStream.format("parquet").option("path", config.to.parquet.path)
    else:

        def each(rows: DataFrame, _batch: int) -> None:
            show(rows, config, run)

        writer = result.writeStream.foreachBatch(each)
    query = start(writer.outputMode(config.output), "sql", config.trigger, run.checkpoint.query("sql"))
    return {"rows taken in": watch({"sql": query}, run)}


def show(result: DataFrame, config: Config, run: Run) -> int:
    assert config.to.console is not None
    rows = result.limit(config.to.console.rows).collect()
    run.reporter.table(result.columns, [list(row) for row in rows])
    return len(rows)


def as_records(result: DataFrame) -> DataFrame:
    """A result without a column `value` is written as JSON, one record per row."""
    from pyspark.sql import functions as f

    if "value" in result.columns:
        return result
    return result.select(f.to_json(f.struct("*")).cast("binary").alias("value"))


def brokers_of(config: Config) -> str:
    return next(iter(config.tables.values())).source.brokers


def statement_of(config: Config) -> str:
    if config.statement:
        return config.statement.strip().rstrip(";")
    folder, _, name = config.file.rpartition("/")
    try:
        return open_storage(folder or ".").read(name).decode().strip().rstrip(";")
    except FileNotFoundError:
        raise Failure(f"file: {config.file} does not exist: correct the path") from None
