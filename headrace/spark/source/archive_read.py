"""Reads that span a lake and the live log: splits an offset range between the two, and reads the lake's part.

Called by the source when the option `archive` names a lake. Planning is pure and runs on the driver; `read_lake` runs
in a task. Invariant: the pieces of a range are disjoint, ascending, and cover it; an offset that the lake covers is
read from the lake even if the log still has it, so no row is duplicated, and none is missing when retention deletes
segments meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.spark.lake.lake import Lake, load_lake
from headrace.spark.lake.manifest import LakeFile

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class LivePiece:
    """Offsets to fetch from the broker: from `start` to before `end`."""

    start: int
    end: int


@dataclass(frozen=True)
class LakePiece:
    """Offsets to read from the lake's files: from `start` to before `end`."""

    address: str
    topic: str
    partition: int
    start: int
    end: int
    files: tuple[LakeFile, ...]

    @property
    def rows(self) -> int:
        """An upper bound of the number of rows."""
        return sum(span.rows for file in self.files if (span := file.span(self.partition)))


class Archive:
    """The offsets of each partition in a lake: a snapshot that one read uses throughout."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._starts = lake.contents.starts()
        self._ends = lake.contents.ends()

    def start(self, topic: str, partition: int) -> int | None:
        """The first archived offset; None if the lake has no record of the partition."""
        return self._starts.get((topic, partition))

    def end(self, topic: str, partition: int) -> int | None:
        """The first offset after the archived ones; None if the lake has no record of the partition."""
        return self._ends.get((topic, partition))

    def pieces(
        self, topic: str, partition: int, start: int, end: int, max_rows: int = 1_000_000
    ) -> list[LakePiece | LivePiece]:
        """Split the offsets from `start` to before `end` by where they are read; lake pieces have about `max_rows` at
        most."""
        low, high = self._starts.get((topic, partition)), self._ends.get((topic, partition))
        if start >= end:
            return []
        if low is None or high is None or high <= start or end <= low:
            return [LivePiece(start, end)]
        first, last = max(start, low), min(end, high)
        pieces: list[LakePiece | LivePiece] = []
        if start < first:
            pieces.append(LivePiece(start, first))
        pieces += self._lake_pieces(topic, partition, first, last, max_rows)
        if last < end:
            pieces.append(LivePiece(last, end))
        return pieces

    def offset_at(self, topic: str, partition: int, moment_ms: int) -> int | None:
        """The first archived offset whose record has this timestamp or a later one; None if all are earlier."""
        files = [file for file in self._files(topic, partition) if file.last_ms + 1 > moment_ms]
        found: list[int] = []
        for file in files:
            span = file.span(partition)
            if span is None or (found and min(found) <= span.start):
                continue
            offset = self._first_in(file, partition, span.start, span.end, moment_ms)
            if offset is not None:
                found.append(offset)
        return min(found, default=None)

    def _first_in(self, file: LakeFile, partition: int, start: int, end: int, moment_ms: int) -> int | None:
        import pyarrow as pa
        import pyarrow.compute as pc

        from headrace.spark.lake.reading import read_partition

        columns = ["offset", "timestamp"]
        for batch in read_partition(self._lake.storage, [file], partition, start, end, columns):
            times = pc.cast(batch.column("timestamp"), pa.int64())
            late = batch.filter(pc.greater_equal(times, moment_ms * 1000))
            if late.num_rows:
                return int(late.column("offset")[0].as_py())
        return None

    def _files(self, topic: str, partition: int) -> list[LakeFile]:
        files = [file for file in self._lake.contents.files.values() if file.topic == topic and file.span(partition)]
        return sorted(files, key=lambda file: next(span.start for span in file.spans if span.partition == partition))

    def _lake_pieces(self, topic: str, partition: int, start: int, end: int, max_rows: int) -> list[LakePiece]:
        """Split the range at the starts of files, so that few files are read by two tasks."""
        spans = [(span, file) for file in self._files(topic, partition) if (span := file.span(partition))]
        cuts, rows = [start], 0
        for span, _ in spans:
            if start < span.start < end and rows >= max_rows:
                cuts.append(span.start)
                rows = 0
            rows += span.rows
        return [
            LakePiece(
                self._lake.address, topic, partition, low, high,
                tuple(file for span, file in spans if span.start < high and span.end > low),
            )
            for low, high in zip(cuts, [*cuts[1:], end], strict=True)
        ]  # fmt: skip


def open_archive(address: str) -> Archive:
    """A snapshot of the lake at an address; Failure if there is none."""
    return Archive(load_lake(address))


def read_lake(piece: LakePiece, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a piece with the named columns, in offset order, with the types of the source's columns."""
    from headrace.spark.lake.reading import read_partition
    from headrace.spark.lake.storage import open_storage

    storage = open_storage(piece.address)
    yield from read_partition(storage, piece.files, piece.partition, piece.start, piece.end, columns)
