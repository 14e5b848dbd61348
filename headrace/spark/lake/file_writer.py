"""Writes lake files on an executor: Arrow batches in, Parquet files and their descriptions out.

Called in the tasks of the archive pipeline and of compaction. Files are built in memory, so a file appears whole or not
at all. Their names are unique to the attempt, and they count only once the driver's commit names them. Invariant: the
spans of a file's description are exactly its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.spark.lake.manifest import LakeFile, Span
from headrace.spark.lake.rows import LAKE_SCHEMA, by_topic_and_hour, conform, folder_of, from_ends_on
from headrace.spark.lake.storage import Storage
from headrace.world.entropy import Entropy

ROW_GROUP_BYTES = 32 * 1024 * 1024
# Rows with scattered timestamps must not make a task keep a file open for each of a thousand hours, nor more data in
# memory than two whole files.
MAX_OPEN_FILES = 32


class OpenFile:
    """A file being built."""

    def __init__(self, topic: str, hour: str) -> None:
        self.topic = topic
        self.hour = hour
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._sink, LAKE_SCHEMA, compression="zstd", write_statistics=True)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._spans: dict[int, Span] = {}
        self._first_us: int | None = None
        self._last_us = 0

    @property
    def size_bytes(self) -> int:
        return int(self._sink.tell()) + self._waiting_bytes

    def add(self, batch: pa.RecordBatch) -> None:
        self._describe(batch)
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._write_row_group()

    def finish(self, storage: Storage, entropy: Entropy) -> LakeFile:
        """Write the file and return its description."""
        self._write_row_group()
        self._writer.close()
        data = self._sink.getvalue()
        name = f"{folder_of(self.topic, self.hour)}/{entropy.uuid().hex}.parquet"
        storage.put(name, memoryview(data))
        spans = tuple(self._spans[partition] for partition in sorted(self._spans))
        rows = sum(span.rows for span in spans)
        first_us = self._first_us or 0
        return LakeFile(name, self.topic, self.hour, rows, data.size, first_us // 1000, self._last_us // 1000, spans)

    def _write_row_group(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=1 << 30)
            self._waiting, self._waiting_bytes = [], 0

    def _describe(self, batch: pa.RecordBatch) -> None:
        sums = (
            pa.Table.from_batches([batch])
            .group_by("partition")
            .aggregate([("offset", "min"), ("offset", "max"), ("offset", "count")])
        )
        for row in sums.to_pylist():
            fresh = Span(row["partition"], row["offset_min"], row["offset_max"] + 1, row["offset_count"])
            known = self._spans.get(fresh.partition)
            self._spans[fresh.partition] = fresh if known is None else joined(known, fresh)
        times = pc.min_max(pc.cast(batch.column("timestamp"), pa.int64())).as_py()
        self._first_us = times["min"] if self._first_us is None else min(self._first_us, times["min"])
        self._last_us = max(self._last_us, times["max"])


def joined(one: Span, other: Span) -> Span:
    return Span(one.partition, min(one.start, other.start), max(one.end, other.end), one.rows + other.rows)


def write_files(
    batches: Iterable[pa.RecordBatch],
    ends: dict[tuple[str, int], int],
    storage: Storage,
    entropy: Entropy,
    target_bytes: int,
) -> Iterator[LakeFile]:
    """Write all rows at or after `ends`: one file per topic and hour, more where one would exceed the target size."""
    files: dict[tuple[str, str], OpenFile] = {}
    for batch in batches:
        if not batch.num_rows:
            continue
        for topic, hour, piece in by_topic_and_hour(from_ends_on(conform(batch), ends)):
            file = files.get((topic, hour))
            if file is None:
                file = files[topic, hour] = OpenFile(topic, hour)
            file.add(piece)
            if file.size_bytes >= target_bytes:
                yield files.pop((topic, hour)).finish(storage, entropy)
        while len(files) > MAX_OPEN_FILES or sum(file.size_bytes for file in files.values()) > 2 * target_bytes:
            fullest = max(files, key=lambda key: files[key].size_bytes)
            yield files.pop(fullest).finish(storage, entropy)
    for file in files.values():
        yield file.finish(storage, entropy)
