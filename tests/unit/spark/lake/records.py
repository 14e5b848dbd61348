"""Records for lakes under test: Arrow batches as the source hands them over, and lakes that hold some."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from headrace.spark.lake.file_writer import write_files
from headrace.spark.lake.lake import Lake
from headrace.spark.lake.manifest import LakeFile
from headrace.spark.lake.rows import HEADERS, RECORD_SCHEMA
from headrace.spark.lake.storage import Folder
from headrace.world.clock import SystemClock
from headrace.world.disk import RealDisk
from headrace.world.entropy import SeededEntropy

NOON_MS = 1_763_294_400_000  # 2025-11-16 12:00 UTC
HOUR_MS = 3_600_000
TARGET_BYTES = 1 << 20


def records(partition: int, offsets: Sequence[int], times_ms: Sequence[int], topic: str = "logs") -> pa.RecordBatch:
    count = len(offsets)
    columns = [
        pa.array([None if offset % 5 == 0 else b"k%d" % offset for offset in offsets], pa.binary()),
        pa.array([b"v%d" % offset for offset in offsets], pa.binary()),
        pa.array([topic] * count, pa.string()),
        pa.array([partition] * count, pa.int32()),
        pa.array(offsets, pa.int64()),
        pa.array([moment * 1000 for moment in times_ms], pa.timestamp("us", "UTC")),
        pa.array([0] * count, pa.int32()),
        pa.array([[{"key": "h", "value": None}] for _ in offsets], HEADERS),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def every_minute(partition: int, first: int, end: int, topic: str = "logs") -> pa.RecordBatch:
    """Offsets from first up to end, one record a minute from noon on."""
    offsets = range(first, end)
    return records(partition, offsets, [NOON_MS + offset * 60_000 for offset in offsets], topic)


def new_lake(folder: Path) -> Lake:
    """An empty lake with its lock taken."""
    return Lake(str(folder), Folder(folder, RealDisk()), SystemClock()).take()


def append(lake: Lake, *batches: pa.RecordBatch) -> list[LakeFile]:
    """What one micro-batch does: tasks write files, the driver commits them."""
    entropy = SeededEntropy(lake.contents.number + 1)
    ends = lake.contents.ends()
    files = [file for batch in batches for file in write_files([batch], ends, lake.storage, entropy, TARGET_BYTES)]
    lake.commit(f"test/{lake.contents.number}", files)
    return files
