"""Reads lake files in offset order: several Parquet files in, Arrow batches of one partition out.

Called in tasks of replay, compaction and reads of an archive. Files of one partition may overlap in offsets (late rows
are in an earlier hour), so they are merged; a file is opened only when its first offset is due, which limits memory to
one batch per overlapping file. Invariant: every row of the range is returned once, in offset order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.spark.lake.manifest import LakeFile
from headrace.spark.lake.rows import RECORD_SCHEMA
from headrace.spark.lake.storage import Storage

BATCH_ROWS = 16_384


class PartitionRows:
    """The rows of one partition in one file, batch by batch; `rows` are those read and not yet taken."""

    def __init__(
        self, storage: Storage, name: str, partition: int, first: int, end: int, columns: Sequence[str]
    ) -> None:
        self._source = storage.open(name)
        wanted = list(dict.fromkeys([*columns, "partition", "offset"]))
        file = pq.ParquetFile(self._source)
        groups = row_groups(file.metadata, partition, first, end)
        self._batches = file.iter_batches(BATCH_ROWS, row_groups=groups, columns=wanted)
        self._columns = list(columns)
        self._partition = partition
        self._first = first
        self._end = end
        self.rows: pa.RecordBatch | None = None
        self.offsets: pa.Array = pa.array([], pa.int64())

    def advance(self) -> bool:
        """Read the next batch into `rows`; at the end of the file close it and return False."""
        for batch in self._batches:
            offsets = batch.column("offset")
            wanted = pc.and_(
                pc.equal(batch.column("partition"), self._partition),
                pc.and_(pc.greater_equal(offsets, self._first), pc.less(offsets, self._end)),
            )
            kept = batch.filter(wanted)
            if kept.num_rows:
                self.offsets = kept.column("offset")
                self.rows = kept.select(self._columns)
                return True
        self.rows = None
        self._source.close()
        return False

    def take_below(self, bound: int) -> pa.RecordBatch | None:
        """Remove and return the rows with offsets below the bound."""
        if self.rows is None:
            return None
        # Offsets ascend within a partition of a file, so a count is a position.
        count = int(pc.sum(pc.less(self.offsets, bound)).as_py() or 0)
        taken = self.rows.slice(0, count)
        self.rows, self.offsets = self.rows.slice(count), self.offsets.slice(count)
        return taken if count else None

    @property
    def empty(self) -> bool:
        return self.rows is None or self.rows.num_rows == 0

    def last(self) -> int:
        return int(self.offsets[-1].as_py())


def row_groups(metadata: pq.FileMetaData, partition: int, first: int, end: int) -> list[int]:
    """The row groups that may have rows of the range, by their statistics."""
    names = metadata.schema.names
    places = [(names.index("partition"), partition, partition + 1), (names.index("offset"), first, end)]

    def may_hold(group: pq.RowGroupMetaData) -> bool:
        for column, low, high in places:
            statistics = group.column(column).statistics
            if statistics is not None and (statistics.max < low or statistics.min >= high):
                return False
        return True

    return [number for number in range(metadata.num_row_groups) if may_hold(metadata.row_group(number))]


def read_partition(
    storage: Storage, files: Sequence[LakeFile], partition: int, first: int, end: int, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Rows of a partition with offsets from `first` to before `end`, in order."""
    names = [field.name for field in RECORD_SCHEMA if field.name in columns]
    later = sorted(
        (
            (span.start, file)
            for file in files
            if (span := file.span(partition)) and span.start < end and span.end > first
        ),
        key=lambda pair: pair[0],
        reverse=True,
    )
    current: list[PartitionRows] = []
    while later or current:
        if not current:
            current = [row for row in [_opened(storage, later.pop()[1], partition, first, end, names)] if row]
            continue
        bound = min(rows.last() for rows in current) + 1
        while later and later[-1][0] < bound:
            fresh = _opened(storage, later.pop()[1], partition, first, end, names)
            if fresh:
                current.append(fresh)
                bound = min(bound, fresh.last() + 1)
        pieces = [piece for rows in current if (piece := _with_offsets(rows, bound))]
        yield from _merged(pieces)
        current = [rows for rows in current if not rows.empty or rows.advance()]


def _opened(
    storage: Storage, file: LakeFile, partition: int, first: int, end: int, columns: Sequence[str]
) -> PartitionRows | None:
    rows = PartitionRows(storage, file.name, partition, first, end, columns)
    return rows if rows.advance() else None


def _with_offsets(rows: PartitionRows, bound: int) -> tuple[pa.Array, pa.RecordBatch] | None:
    offsets = rows.offsets
    taken = rows.take_below(bound)
    return None if taken is None else (offsets.slice(0, taken.num_rows), taken)


def _merged(pieces: list[tuple[pa.Array, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    if len(pieces) == 1:
        yield pieces[0][1]
        return
    order = pc.sort_indices(pa.chunked_array([offsets for offsets, _ in pieces]).combine_chunks())
    table = pa.Table.from_batches([rows for _, rows in pieces]).combine_chunks().take(order)
    yield from table.combine_chunks().to_batches()
