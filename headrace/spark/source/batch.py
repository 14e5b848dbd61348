"""The batch reader: spark.read.format("headrace").

Planning runs on the driver, once per query, and asks brokers for offsets; reading runs in tasks. `FilteringBatchReader`
is used where Spark pushes filters down. There are two classes because Spark rejects a reader with `pushFilters` where
pushdown is off. Invariant: a query reads the offset range found when it was planned, and no later record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from headrace.spark.source.broker_logs import BrokerLogs
from headrace.spark.source.fetching import LiveRange
from headrace.spark.source.filters import Bounds, bounds_of
from headrace.spark.source.options import SourceOptions
from headrace.spark.source.plan import OffsetRange, narrowed, ranges_between, split
from headrace.spark.source.positions import Offsets
from headrace.spark.source.starting import Edges, open_archive
from headrace.spark.source.task import ReadTask, read_task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from headrace.spark.source.archive_read import Archive, LakePiece


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        archive = open_archive(self._options)
        with BrokerLogs(self._options) as logs:
            ranges = self._ranges(logs, archive)
            pieces = pieces_of(ranges, logs, archive, self._options)
        return [ReadTask((piece,)) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._options, self._schema, partition)

    def _ranges(self, logs: BrokerLogs, archive: Archive | None) -> list[OffsetRange]:
        options, bounds = self._options, self._bounds
        everywhere = logs.partitions()
        starting, ending = options.starting.of(everywhere), options.ending.of(everywhere)
        places = [place for place in everywhere if bounds.admit(place)]
        edges = Edges(options, logs, places, archive)
        starts = edges.starts({place: starting[place] for place in places})
        ends = edges.ends({place: ending[place] for place in places})
        ranges = ranges_between(starts, ends)
        if bounds.offsets.low is not None:
            ranges = narrowed(ranges, {one.place: bounds.offsets.low for one in ranges}, {})
        if bounds.offsets.end is not None:
            ranges = narrowed(ranges, {}, {one.place: bounds.offsets.end for one in ranges})
        return self._narrowed_by_time(ranges, edges, logs)

    def _narrowed_by_time(self, ranges: list[OffsetRange], edges: Edges, logs: BrokerLogs) -> list[OffsetRange]:
        times = self._bounds.times_ms
        low: Offsets = {}
        high: Offsets = {}
        if times.low is not None and ranges:
            found = edges.at_times({one.place: max(0, times.low) for one in ranges})
            low = {one.place: one.end if found[one.place] is None else found[one.place] or 0 for one in ranges}
        if times.end is not None and ranges and self._options.archive is None:
            ordered = {topic for topic in {one.place.topic for one in ranges} if logs.has_broker_times(topic)}
            asked = {one.place: max(0, times.end) for one in ranges if one.place.topic in ordered}
            high = {place: offset for place, offset in logs.at_times(asked).items() if offset is not None}
        return narrowed(ranges, low, high)


class FilteringBatchReader(BatchReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        self._bounds = bounds_of(filters)
        return filters  # bounds are only an approximation, so Spark applies all filters again


def pieces_of(
    ranges: list[OffsetRange], logs: BrokerLogs, archive: Archive | None, options: SourceOptions
) -> list[LiveRange | LakePiece]:
    """Split the ranges by where they are read, and to the size that the options ask for."""
    archived: list[LakePiece] = []
    live = ranges
    if archive is not None:
        from headrace.spark.source.archive_read import LivePiece

        live = []
        for one in ranges:
            for piece in archive.pieces(*one.place, one.start, one.end):
                if isinstance(piece, LivePiece):
                    live.append(OffsetRange(one.place, piece.start, piece.end))
                else:
                    archived.append(piece)
    parts = split(live, options.min_partitions, options.max_records_per_partition)
    return [*archived, *(live_range(part, logs) for part in parts)]


def live_range(part: OffsetRange, logs: BrokerLogs) -> LiveRange:
    known = logs.known_leader(part.place)
    return LiveRange(part.place, part.start, part.end, known.leader, known.topic_id, logs.view_of(part.place.topic))
