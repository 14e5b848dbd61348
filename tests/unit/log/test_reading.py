"""Read: whole batches, from the wanted one on, never past the limit, with or without the page cache."""

from __future__ import annotations

import pytest

from headrace.log.compaction import Compactor
from headrace.log.partition_log import PartitionLog
from headrace.model.topic_config import TopicConfig
from headrace.wire.batches import read_header, stamp, walk
from headrace.wire.errors import ErrorCode, KafkaError
from sim.disk import SimDisk
from tests.unit.log.batches import NOW, batch, open_log

SIZE = len(batch(3))


def log_of(batches: int, disk: SimDisk | None = None, **config: int) -> PartitionLog:
    """Batches of three records each."""
    log = open_log(disk or SimDisk(), TopicConfig(index_interval_bytes=300, **config))  # type: ignore[arg-type]
    for number in range(batches):
        log.append(batch(3, at=NOW + 10 * number), 0, now_ms=NOW)
    return log


def bases(log: PartitionLog, offset: int, max_bytes: int, below: int, *, at_least_one: bool = True) -> list[int]:
    """The base offsets of the batches that one read gives."""
    piece = log.read(offset, max_bytes, below, at_least_one=at_least_one)
    data = piece.load_cached()
    if data is None:
        data = piece.load()
    assert len(data) == sum(header.size for _, header in walk(data))
    return [header.base_offset for _, header in walk(data)]


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("batches", [10, 2000])
def test_a_read_starts_with_the_batch_that_has_the_offset(batches: int, cold: bool) -> None:
    disk = SimDisk()
    log = log_of(batches, disk)
    disk.cold = cold
    end = log.end_offset
    for offset in (0, 1, 2, 3, 14, end // 2, end - 4, end - 1):
        assert bases(log, offset, SIZE, end) == [offset - offset % 3]


@pytest.mark.parametrize("cold", [False, True])
def test_the_limit_holds_and_whole_batches_come(cold: bool) -> None:
    disk = SimDisk()
    log = log_of(1000, disk)
    disk.cold = cold
    assert bases(log, 0, 10**9, 9) == [0, 3, 6]
    assert bases(log, 0, 2 * SIZE + 1, 3000) == [0, 3]
    assert bases(log, 0, SIZE - 1, 3000) == [0], "the first batch comes even if it is too large"
    assert bases(log, 0, SIZE - 1, 3000, at_least_one=False) == []
    assert bases(log, 0, 0, 3000, at_least_one=False) == []
    many = bases(log, 300, 50 * SIZE, 3000)
    assert many == list(range(300, 300 + 3 * len(many), 3))
    assert 40 <= len(many) <= 50


def test_who_goes_on_where_the_last_answer_ended_needs_no_look_into_the_file() -> None:
    disk = SimDisk()
    log = log_of(2000, disk)
    limit = 50 * SIZE + 1
    offset = bases(log, 0, limit, log.end_offset)[-1] + 3
    disk.cold = True
    piece = log.read(offset, limit, log.end_offset, at_least_one=True)
    assert piece.size % SIZE == 0, "the size is that of whole batches, not what a look would have to find out"
    assert read_header(piece.load()).base_offset == offset


def test_at_the_limit_there_is_nothing_and_outside_the_log_an_error() -> None:
    log = log_of(3)
    assert log.read(9, 1000, 9, at_least_one=True).load() == b""
    assert log.read(5, 1000, 3, at_least_one=True).size == 0
    log.advance_start(4)
    for offset in (3, 10):
        with pytest.raises(KafkaError) as error:
            log.read(offset, 1000, 9, at_least_one=True)
        assert error.value.code is ErrorCode.offset_out_of_range
    assert bases(log, 4, 1000, 9) == [3, 6]


def test_a_read_stays_in_one_segment_and_goes_on_in_the_next() -> None:
    log = log_of(6, segment_bytes=2 * SIZE)
    assert bases(log, 0, 10**6, 18) == [0, 3]
    assert bases(log, 6, 10**6, 18) == [6, 9]
    assert bases(log, 6, 10**6, 9) == [6]


def test_a_slice_that_waits_for_the_disk_does_not_see_what_came_later() -> None:
    disk = SimDisk()
    log = log_of(1000, disk)
    disk.cold = True
    piece = log.read(0, 10**9, log.end_offset, at_least_one=True)
    assert piece.load_cached() is None
    for _ in range(600):
        log.append(batch(3), 0, now_ms=NOW)
    assert [header.base_offset for _, header in walk(piece.load())] == list(range(0, 3000, 3))


def test_what_was_written_last_is_kept_for_a_reader_that_keeps_up() -> None:
    disk = SimDisk()
    log = log_of(3, disk)

    def from_memory(offset: int, max_bytes: int = SIZE) -> list[int] | None:
        disk.cold = True
        data = log.read(offset, max_bytes, log.end_offset, at_least_one=True).load_cached()
        disk.cold = False
        return None if data is None else [header.base_offset for _, header in walk(data)]

    assert from_memory(6) is None, "nobody has followed so far"
    log.append(batch(3), 0, now_ms=NOW)
    assert from_memory(9) == [9]
    assert from_memory(9, SIZE - 1) is None, "the limit holds as for every other read"
    assert from_memory(10) is None, "this reader began in the middle"
    assert log.read(9, SIZE, 12, at_least_one=True).load() == log.read(9, SIZE, 12, at_least_one=True).load_cached()
    log.append(batch(3), 0, now_ms=NOW)
    assert from_memory(12) == [12]
    assert from_memory(9, 2 * SIZE) is None
    log.append(batch(3), 0, now_ms=NOW)
    log.append(batch(3), 0, now_ms=NOW)
    assert from_memory(18) is None, "the write before it was read by nobody"


def test_what_was_cut_off_is_not_kept() -> None:
    log = log_of(3)
    for _ in range(2):
        bases(log, log.end_offset - 3, SIZE, log.end_offset)
        log.append(batch(3), 0, now_ms=NOW)
    log.truncate_to(12)
    assert log.read(12, SIZE, 12, at_least_one=True).size == 0
    log.append_as_follower(memoryview(_moved(batch(2), 12)))
    piece = log.read(12, SIZE, 14, at_least_one=True)
    assert piece.load_cached() == piece.load()
    assert piece.size == len(batch(2))


def test_what_compaction_may_rewrite_is_not_kept() -> None:
    log = log_of(1)
    bases(log, 0, SIZE, 3)
    log.append(batch(3), 0, now_ms=NOW)
    log.roll(NOW)
    Compactor(log._shelf).compact(log, NOW)
    for _ in range(2):
        log.apply_retention(NOW + 60_000)
    piece = log.read(3, SIZE, 6, at_least_one=True)
    assert piece.load_cached() == piece.load() != b""


def _moved(records: memoryview, offset: int) -> bytearray:
    moved = bytearray(records)
    stamp(memoryview(moved), 0, offset, read_header(moved).length, 0)
    return moved


def test_a_slice_outlives_its_segment() -> None:
    log = log_of(6, segment_bytes=2 * SIZE)
    piece = log.read(0, 10**6, 18, at_least_one=True)
    log.advance_start(12)
    assert len(piece.load()) == 2 * SIZE
    log.apply_retention(NOW)
    log.apply_retention(NOW + 60_000)
    assert piece.load() == b"", "and is empty once the file is gone"


def test_indexes_that_are_lost_are_made_anew() -> None:
    disk = SimDisk()
    log = log_of(200, disk, segment_bytes=50 * SIZE)
    log.close()
    for name in disk.list_dir(log.directory):
        if name.endswith(("index", "timeindex")):
            disk.remove(log.directory / name)
    log = open_log(disk, log.config)
    assert log.scanned_bytes == 0
    assert [bases(log, offset, SIZE, 600) for offset in (0, 100, 599)] == [[0], [99], [597]]
    assert log.find_time(NOW + 1990, 600) == (597, NOW + 1990)


def test_a_time_is_found_to_the_record() -> None:
    log = log_of(500, segment_bytes=40 * SIZE)
    end = log.end_offset
    assert log.find_time(0, end) == (0, NOW)
    assert log.find_time(NOW + 1, end) == (1, NOW + 1)
    assert log.find_time(NOW + 3, end) == (3, NOW + 10)
    assert log.find_time(NOW + 4001, end) == (1201, NOW + 4001)
    assert log.find_time(NOW + 4001, 1201) is None
    assert log.find_time(NOW + 4993, end) is None
    log.advance_start(2)
    assert log.find_time(0, end) == (2, NOW + 2)
    assert log.find_max_timestamp(end) == (1499, NOW + 4992)
    assert log.find_max_timestamp(30) == (29, NOW + 92)


def test_the_latest_time_may_lie_anywhere() -> None:
    log = open_log(SimDisk(), TopicConfig(timestamp_after_max_ms=10**6))
    for at in (NOW + 5, NOW + 900, NOW + 900, NOW + 10):
        log.append(batch(2, at=at), 0, now_ms=NOW)
    assert log.find_max_timestamp(8) == (3, NOW + 901)
    assert log.find_max_timestamp(2) == (1, NOW + 6)
    assert log.find_max_timestamp(0) is None
    assert log.find_time(NOW + 7, 8) == (2, NOW + 900)
