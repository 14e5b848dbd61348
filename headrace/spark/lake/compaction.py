"""Compaction of a lake: rewrites many small files of one topic and hour into few.

`small_files` selects the groups (pure); `rewrite` runs in a task on an executor. The archive pipeline then replaces the
old files by the new ones in one commit. Invariant: a group's new files have exactly the rows of its old ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from headrace.spark.lake.file_writer import write_files
from headrace.spark.lake.manifest import LakeFile
from headrace.spark.lake.reading import read_partition
from headrace.spark.lake.rows import RECORD_SCHEMA
from headrace.spark.lake.storage import Storage
from headrace.world.entropy import Entropy


def small_files(files: Iterable[LakeFile], min_files: int, target_bytes: int) -> list[list[LakeFile]]:
    """Groups worth rewriting: at least `min_files` of one topic and hour, none half as large as the target.

    A group is at most twice the target size, so that a task reads a bounded amount.
    """
    folders: dict[tuple[str, str], list[LakeFile]] = defaultdict(list)
    for file in files:
        if file.size_bytes < target_bytes // 2:
            folders[file.topic, file.hour].append(file)
    groups: list[list[LakeFile]] = []
    for folder in sorted(folders):
        groups += [group for group in _bounded(folders[folder], 2 * target_bytes) if len(group) >= min_files]
    return groups


def _bounded(files: Sequence[LakeFile], max_bytes: int) -> Iterator[list[LakeFile]]:
    group: list[LakeFile] = []
    size = 0
    for file in sorted(files, key=lambda file: (file.spans[0].start, file.name)):
        if group and size + file.size_bytes > max_bytes:
            yield group
            group, size = [], 0
        group.append(file)
        size += file.size_bytes
    if group:
        yield group


def rewrite(storage: Storage, files: Sequence[LakeFile], entropy: Entropy, target_bytes: int) -> list[LakeFile]:
    """Rewrite the files' rows into new files, sorted by partition and offset."""
    written = list(write_files(_all_rows(storage, files), {}, storage, entropy, target_bytes))
    before, after = sum(file.rows for file in files), sum(file.rows for file in written)
    if before != after:
        raise RuntimeError(
            f"compaction of {files[0].name} and others read {after} rows, but the manifest says {before}"
        )
    return written


def _all_rows(storage: Storage, files: Sequence[LakeFile]) -> Iterator[pa.RecordBatch]:
    partitions = sorted({span.partition for file in files for span in file.spans})
    for partition in partitions:
        spans = [span for file in files if (span := file.span(partition))]
        first, end = min(span.start for span in spans), max(span.end for span in spans)
        yield from read_partition(storage, files, partition, first, end, RECORD_SCHEMA.names)
