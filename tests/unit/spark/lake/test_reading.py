"""Rows come out of a lake once and in the order of offsets, however its files overlap."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.spark.lake import file_writer
from headrace.spark.lake.compaction import rewrite, small_files
from headrace.spark.lake.reading import read_partition, row_groups
from headrace.spark.source.archive_read import Archive, LakePiece, LivePiece, read_lake
from headrace.world.entropy import SeededEntropy

from .records import HOUR_MS, NOON_MS, TARGET_BYTES, append, every_minute, new_lake, records


@settings(max_examples=25)
@given(
    hours=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    cut=st.integers(1, 20),
    compacted=st.booleans(),
    low=st.integers(0, 60),
    length=st.integers(0, 60),
)
def test_overlapping_files_are_merged_by_offset(
    hours: list[int], cut: int, compacted: bool, low: int, length: int
) -> None:
    with TemporaryDirectory() as folder:
        lake = new_lake(Path(folder))
        for first in range(0, len(hours), cut):
            offsets = range(first, min(first + cut, len(hours)))
            append(lake, records(3, offsets, [NOON_MS + hours[offset] * HOUR_MS for offset in offsets]))
        if compacted:
            for group in small_files(lake.contents.files.values(), 2, TARGET_BYTES):
                lake.commit("compaction", rewrite(lake.storage, group, SeededEntropy(1000), TARGET_BYTES), group)
        files = list(lake.contents.files.values())
        read = [
            offset
            for batch in read_partition(lake.storage, files, 3, low, low + length, ["value", "offset"])
            for offset in batch.column("offset").to_pylist()
        ]
        assert read == [offset for offset in range(len(hours)) if low <= offset < low + length]


def test_a_range_is_cut_into_lake_and_live_without_gap_or_overlap(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    for first in range(100, 200, 20):
        append(lake, every_minute(0, first, first + 20))
    archive = Archive(lake)
    assert (archive.start("logs", 0), archive.end("logs", 0), archive.end("logs", 1)) == (100, 200, None)

    def ranges(start: int, end: int, max_rows: int = 1000) -> list[tuple[str, int, int]]:
        pieces = archive.pieces("logs", 0, start, end, max_rows)
        return [("lake" if isinstance(piece, LakePiece) else "live", piece.start, piece.end) for piece in pieces]

    assert ranges(0, 50) == [("live", 0, 50)]
    assert ranges(0, 100) == [("live", 0, 100)]
    assert ranges(50, 250) == [("live", 50, 100), ("lake", 100, 200), ("live", 200, 250)]
    assert ranges(110, 120) == [("lake", 110, 120)]
    assert ranges(200, 250) == [("live", 200, 250)]
    assert ranges(150, 150) == []
    assert ranges(110, 190, 30) == [("lake", 110, 140), ("lake", 140, 180), ("lake", 180, 190)]
    assert archive.pieces("logs", 1, 5, 9) == [LivePiece(5, 9)]


def test_a_piece_of_the_lake_is_read_with_the_wanted_columns(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    append(lake, every_minute(0, 0, 30))
    [piece] = Archive(lake).pieces("logs", 0, 7, 12)
    assert isinstance(piece, LakePiece)
    [batch] = read_lake(piece, ["value"])
    assert batch.to_pydict() == {"value": [b"v7", b"v8", b"v9", b"v10", b"v11"]}


def test_the_first_offset_of_a_moment_is_found_in_the_lake(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    for first in range(0, 180, 50):
        append(lake, every_minute(0, first, first + 50))
    archive = Archive(lake)
    assert archive.offset_at("logs", 0, NOON_MS) == 0
    assert archive.offset_at("logs", 0, NOON_MS + 60_000 * 77 - 1) == 77
    assert archive.offset_at("logs", 0, NOON_MS + 60_000 * 500) is None
    assert archive.offset_at("logs", 9, NOON_MS) is None


def test_row_groups_that_cannot_hold_the_range_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "ROW_GROUP_BYTES", 1)
    lake = new_lake(tmp_path)
    batches = [every_minute(partition, first, first + 10) for partition in (0, 1) for first in (0, 10, 20)]
    [file] = file_writer.write_files(batches, {}, lake.storage, SeededEntropy(1), TARGET_BYTES)
    metadata = pq.ParquetFile(tmp_path / file.name).metadata
    assert row_groups(metadata, 0, 0, 30) == [0, 1, 2]
    assert row_groups(metadata, 1, 10, 11) == [4]
    assert row_groups(metadata, 1, 9, 21) == [3, 4, 5]
    assert row_groups(metadata, 2, 0, 30) == []
    [piece] = read_partition(lake.storage, [file], 1, 12, 14, ["value"])
    assert piece.to_pydict() == {"value": [b"v12", b"v13"]}
