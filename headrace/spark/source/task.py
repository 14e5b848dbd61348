"""One task of a read: offset ranges in, Arrow record batches out.

Called by Spark's Python workers through the readers. Connections are kept between the tasks of a worker process, since
a micro-batch is short and connecting takes time. A process runs one task at a time, so connections are not shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from headrace.client.metadata import Cluster
from headrace.model.failure import Failure
from headrace.spark.source.arrow_rows import ArrowRows
from headrace.spark.source.fetching import LiveRange, RangeFetch
from headrace.spark.source.options import SourceOptions
from headrace.spark.source.visible import by_tags, visible_sections
from headrace.spark.worker_process import freeze_loaded_modules
from headrace.wire.columns import Section, read_columns
from headrace.wire.errors import Malformed
from headrace.world.clock import SystemClock

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from headrace.spark.source.archive_read import LakePiece

# Decompressed batches may be many times the size of a fetch; Spark gets them in portions of about this size.
_PORTION_BYTES = 4 << 20

_clusters: dict[tuple[object, ...], Cluster] = {}


class ReadTask(InputPartition):
    """The pieces that one task reads, one after the other."""

    def __init__(self, pieces: tuple[LiveRange | LakePiece, ...]) -> None:
        super().__init__(None)
        self.pieces = pieces


def read_task(options: SourceOptions, schema: StructType, task: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a task. Where there is nothing to read, Spark runs a task without pieces."""
    freeze_loaded_modules()
    for piece in task.pieces if isinstance(task, ReadTask) else ():
        if isinstance(piece, LiveRange):
            yield from read_range(options, schema, piece)
        else:
            from headrace.spark.source.archive_read import read_lake

            yield from read_lake(piece, schema.fieldNames())


def read_range(options: SourceOptions, schema: StructType, wanted: LiveRange) -> Iterator[pa.RecordBatch]:
    """The rows of an offset range."""
    rows = ArrowRows(schema, wanted.place)
    keeps, any_of = None, options.tags
    if options.tags_match != "any":
        keeps, any_of = by_tags(options.tags, options.tags_match), ()
    fetch = RangeFetch(options, wanted, _cluster(options), SystemClock())
    for first, records, found, aborted in fetch.responses():
        try:
            sections = visible_sections(records, found, aborted, check_crcs=options.check_crcs, keeps=keeps)
            for portion in _portions(sections):
                columns = read_columns(portion, rows.wanted, first, wanted.end, any_of)
                if columns.rows:
                    yield rows.batch(columns)
        except Malformed as error:
            place, offset = wanted.place, found[0][1].base_offset
            raise Failure(
                f"partition {place.partition} of topic {place.topic} has a corrupt batch at or after offset {offset}: "
                f"{error}. Read from an offset after it, or restore the partition from another replica"
            ) from error


def _portions(sections: Iterable[Section]) -> Iterator[list[Section]]:
    portion: list[Section] = []
    size = 0
    for section in sections:
        if portion and size + len(section.data) > _PORTION_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(section)
        size += len(section.data)
    if portion:
        yield portion


def _cluster(options: SourceOptions) -> Cluster:
    """This process's connections to the cluster."""
    name = (options.bootstrap, options.client_id, options.patience_s, options.timeout_s)
    if name not in _clusters:
        _clusters[name] = Cluster(
            options.bootstrap, options.client_id, patience_s=options.patience_s, timeout_s=options.timeout_s
        )
    return _clusters[name]
