"""A lake holds what its commits say: no row twice, none of an uncommitted batch, one writer at a time."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headrace.model.failure import Failure
from headrace.spark.lake.compaction import rewrite, small_files
from headrace.spark.lake.file_writer import write_files
from headrace.spark.lake.lake import load_lake
from headrace.spark.lake.manifest import COMMITS_PER_SUM, Span
from headrace.world.entropy import SeededEntropy

from .records import HOUR_MS, NOON_MS, TARGET_BYTES, append, every_minute, new_lake, records


def test_rows_lie_by_topic_and_hour_with_their_spans(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    files = append(lake, every_minute(0, 0, 90), every_minute(1, 10, 20))
    assert [(Path(file.name).parent.as_posix(), file.spans) for file in files] == [
        ("data/topic=logs/hour=2025-11-16-12", (Span(0, 0, 60, 60),)),
        ("data/topic=logs/hour=2025-11-16-13", (Span(0, 60, 90, 30),)),
        ("data/topic=logs/hour=2025-11-16-12", (Span(1, 10, 20, 10),)),
    ]
    assert files[1].first_ms == NOON_MS + HOUR_MS
    table = pq.ParquetFile(tmp_path / files[0].name).read()
    assert table.column("offset").to_pylist() == list(range(60))
    assert set(table.column("hour").to_pylist()) == {"2025-11-16-12"}


def test_a_record_from_before_1970_has_its_own_hour(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    files = append(lake, records(0, [0, 1], [-1, 0]))
    assert [file.hour for file in files] == ["1969-12-31-23", "1970-01-01-00"]


def test_a_batch_that_comes_again_adds_nothing(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    append(lake, every_minute(0, 0, 30))
    assert append(lake, every_minute(0, 0, 30)) == []
    again = append(lake, every_minute(0, 20, 40))
    assert [span for file in again for span in file.spans] == [Span(0, 30, 40, 10)]
    assert lake.contents.rows() == 40


def test_a_file_that_outgrows_the_target_is_followed_by_another(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    batches = [records(0, range(first, first + 50), [NOON_MS] * 50) for first in range(0, 500, 50)]
    files = list(write_files(batches, {}, lake.storage, SeededEntropy(1), 4000))
    assert len(files) > 1
    assert sum(file.rows for file in files) == 500
    assert [file.spans[0].start for file in files] == [0, *(file.spans[0].end for file in files[:-1])]


def test_wild_timestamps_neither_hold_many_files_nor_much_memory(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    wild = [records(0, range(first, first + 40), [(first + n) * HOUR_MS for n in range(40)]) for first in (0, 40)]
    files = list(write_files(wild, {}, lake.storage, SeededEntropy(1), 10_000))
    assert sum(file.rows for file in files) == 80
    assert len({file.hour for file in files}) == len(files) == 80


def test_a_lake_is_the_same_after_a_restart_also_from_a_sum(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    for number in range(COMMITS_PER_SUM + 3):
        append(lake, every_minute(0, number, number + 1))
    assert (tmp_path / "manifest" / f"{COMMITS_PER_SUM:020}.all.json").exists()
    assert load_lake(str(tmp_path)).contents == lake.contents


def test_files_of_a_batch_that_was_never_committed_are_swept(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    kept = append(lake, every_minute(0, 0, 5))
    list(write_files([every_minute(0, 5, 9)], {}, lake.storage, SeededEntropy(9), TARGET_BYTES))
    assert lake.sweep() == 1
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.parquet")] == [kept[0].name]


def test_a_second_writer_is_refused_and_the_next_one_is_not(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    with pytest.raises(Failure, match="another archive pipeline writes to the lake"):
        new_lake(tmp_path)
    lake.release()
    new_lake(tmp_path).release()
    with pytest.raises(RuntimeError, match="needs its lock"):
        lake.commit("a batch that was stopped too late", [])


def test_a_lake_that_is_not_there_or_garbled_or_has_a_hole_is_named(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"there is no lake at .*: run the archive pipeline first"):
        load_lake(str(tmp_path))
    lake = new_lake(tmp_path)
    for number in range(3):
        append(lake, every_minute(0, number, number + 1))
    (tmp_path / "manifest" / f"{2:020}.json").unlink()
    with pytest.raises(Failure, match="commit 3 after 1: a file in its manifest folder is missing"):
        load_lake(str(tmp_path))
    (tmp_path / "manifest" / f"{2:020}.json").write_text("{}")
    with pytest.raises(Failure, match="is not a lake manifest"):
        load_lake(str(tmp_path))


def test_compaction_keeps_every_row_and_replaced_files_stay_a_while(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    for first in range(0, 60, 10):
        append(lake, every_minute(0, first, first + 10), every_minute(1, first, first + 10))
    groups = small_files(lake.contents.files.values(), 4, TARGET_BYTES)
    assert [len(group) for group in groups] == [12]
    written = rewrite(lake.storage, groups[0], SeededEntropy(99), TARGET_BYTES)
    lake.commit("compaction", written, groups[0])
    assert [file.spans for file in lake.contents.files.values()] == [(Span(0, 0, 60, 60), Span(1, 0, 60, 60))]
    assert lake.sweep() == 0, "replaced files are not strangers"
    assert lake.delete_replaced(HOUR_MS) == 0, "readers may still use them"
    assert lake.delete_replaced(0) == 12
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
    assert small_files(lake.contents.files.values(), 4, TARGET_BYTES) == []


def test_a_group_to_compact_is_bounded_and_large_files_are_left_alone(tmp_path: Path) -> None:
    lake = new_lake(tmp_path)
    for first in range(0, 40, 2):
        append(lake, every_minute(0, first, first + 2))
    size = max(file.size_bytes for file in lake.contents.files.values())
    groups = small_files(lake.contents.files.values(), 2, 3 * size)
    assert len(groups) > 1
    assert all(sum(file.size_bytes for file in group) <= 6 * size for group in groups)
    assert small_files(lake.contents.files.values(), 2, size) == []
