"""The archive pipeline: topics to a lake, exactly once.

A stream in micro-batches. The tasks of a batch write Parquet files, then the driver commits them to the lake's
manifest, as one new file. Rows that the lake already has are skipped by their offsets, so a batch that Spark repeats
after a crash adds no duplicates, whatever the checkpoint says. Delta and Iceberg tables follow the manifest. Invariant:
rows in the lake equal the offsets in its manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from headrace.model.failure import Failure
from headrace.spark.lake.lake import Lake, open_lake
from headrace.spark.lake.manifest import LakeFile, encode
from headrace.spark.lake.storage import open_storage
from headrace.spark.lake.tables import Table, catch_up
from headrace.spark.pipelines.archive_start import resumed
from headrace.spark.pipelines.arrow_tasks import map_in_arrow
from headrace.spark.pipelines.configuration import Section, SourceSection, StreamConfiguration, span_ms
from headrace.spark.pipelines.query import start
from headrace.spark.pipelines.run import Run
from headrace.spark.pipelines.topics import Needed, check_source, read_stream, source_topics
from headrace.spark.pipelines.watching import watch
from headrace.world.entropy import SystemEntropy

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MIB = 1024 * 1024
SUMMARY = "topics to a lake of Parquet files (Delta, Iceberg), by topic and hour, exactly once"
TEMPLATE = """
pipeline: archive
source:
  brokers: @BROKER@
  topics: [@TOPIC@]
  starting: earliest        # where the first run starts: earliest or latest
lake:
  path: ./lake              # a folder, or an address such as s3://bucket/lake
  format: parquet           # parquet, delta or iceberg
checkpoint: ./checkpoints/archive
trigger: 30s                # how often; available-now: catch up, then end
"""


class LakeSection(Section, kw_only=True, frozen=True):
    path: str
    format: Literal["parquet", "delta", "iceberg"] = "parquet"
    file_mb: int = 128
    table: str = "lake.records"
    catalog: dict[str, str] = msgspec.field(default_factory=dict)


class CompactionSection(Section, kw_only=True, frozen=True):
    """Every `every_batches` batches, folders with at least `min_files` small files are compacted."""

    every_batches: int = 20
    min_files: int = 16
    keep_replaced: str = "1d"


class Config(StreamConfiguration, kw_only=True, frozen=True):
    source: SourceSection
    lake: LakeSection
    compaction: CompactionSection = CompactionSection()


def check(config: Config) -> None:
    check_source(config.source)
    span_ms(config.compaction.keep_replaced, "compaction.keep_replaced")
    if config.lake.file_mb < 1 or config.compaction.every_batches < 1 or config.compaction.min_files < 2:
        raise Failure("lake.file_mb and compaction.every_batches must be at least 1, compaction.min_files at least 2")


def topics(config: Config) -> list[Needed]:
    return source_topics(config.source)


def shape(config: Config) -> dict[str, Any]:
    return {"lake": config.lake.path, "topics": config.source.topics, "pattern": config.source.pattern}


def run(config: Config, run: Run) -> dict[str, object]:
    lake = open_lake(config.lake.path).take()
    try:
        source = resumed(config.source, lake.contents.ends(), lake.address)
        swept = lake.sweep()
        if swept:
            run.reporter.note(f"removed {swept} files of batches that were never committed")
        writer = BatchWriter(lake, table_of(config, lake), config, run.spark)
        writer.catch_up()
        stream = read_stream(run.spark, source).writeStream.foreachBatch(writer.write)
        query = start(stream, "archive", config.trigger, run.checkpoint.query("archive"))
        rows = watch({"archive": query}, run)
        lake.load()
    finally:
        lake.release()
    contents = lake.contents
    return {
        "rows taken in": rows,
        "rows in the lake": contents.rows(),
        "files": len(contents.files),
        "bytes": contents.size_bytes(),
    }


def table_of(config: Config, lake: Lake) -> Table | None:
    try:
        if config.lake.format == "delta":
            import deltalake  # noqa: F401

            from headrace.spark.lake.delta import DeltaLake

            return DeltaLake(lake)
        if config.lake.format == "iceberg":
            import pyiceberg  # noqa: F401

            from headrace.spark.lake.iceberg import IcebergLake

            return IcebergLake(lake, config.lake.table, config.lake.catalog)
    except ImportError as error:
        raise Failure(
            f"lake.format {config.lake.format} needs the package {error.name}: "
            f"pip install 'headrace[{config.lake.format}]'"
        ) from None
    return None


class BatchWriter:
    """Processes each micro-batch on the driver."""

    def __init__(self, lake: Lake, table: Table | None, config: Config, spark: SparkSession) -> None:
        self._lake = lake
        self._table = table
        self._spark = spark
        self._target_bytes = config.lake.file_mb * MIB
        self._compaction = config.compaction
        self._batches = 0

    def catch_up(self) -> None:
        if self._table is not None:
            catch_up(self._lake, self._table)

    def write(self, rows: DataFrame, batch: int) -> None:
        task = partial(write_task, self._lake.address, self._lake.contents.ends(), self._target_bytes)
        files = collected(rows, task)
        if files:
            self._lake.commit(f"batch {batch}", files)
            self.catch_up()
        self._batches += 1
        if self._batches % self._compaction.every_batches == 0:
            self.compact()

    def compact(self) -> None:
        from headrace.spark.lake.compaction import small_files

        keep_ms = span_ms(self._compaction.keep_replaced, "compaction.keep_replaced")
        groups = small_files(self._lake.contents.files.values(), self._compaction.min_files, self._target_bytes)
        if groups:
            rows = self._spark.createDataFrame([(msgspec.json.encode(group),) for group in groups], "files binary")
            task = partial(compact_task, self._lake.address, self._target_bytes)
            written = collected(rows.repartition(len(groups)), task)
            self._lake.commit("compaction", written, [file for group in groups for file in group])
            self.catch_up()
        self._lake.delete_replaced(keep_ms)


def collected(rows: DataFrame, task: Callable[..., Any]) -> list[LakeFile]:
    """Run a task that writes files over all partitions; returns the files of successful attempts."""
    found = map_in_arrow(rows, task, "file binary").collect()
    return [msgspec.json.decode(bytes(row["file"]), type=LakeFile) for row in found]


def write_task(
    address: str, ends: dict[tuple[str, int], int], target_bytes: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """On an executor: write rows to files."""
    from headrace.spark.lake.file_writer import write_files

    for file in write_files(batches, ends, open_storage(address), SystemEntropy(), target_bytes):
        yield told(file)


def compact_task(address: str, target_bytes: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """On an executor: rewrite groups of small files into larger ones."""
    from headrace.spark.lake.compaction import rewrite

    storage, entropy = open_storage(address), SystemEntropy()
    for batch in batches:
        for group in batch.column(0).to_pylist():
            for file in rewrite(storage, msgspec.json.decode(group, type=list[LakeFile]), entropy, target_bytes):
                yield told(file)


def told(file: LakeFile) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.array([encode(file)], pa.binary())], names=["file"])
