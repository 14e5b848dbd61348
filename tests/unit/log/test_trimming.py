"""Retention, DeleteRecords, truncation and starting over: what goes, what stays, and that it stays so."""

from __future__ import annotations

import random

import pytest

from headrace.log.partition_log import PartitionLog
from headrace.log.producer_state import EXPIRY_MS
from headrace.log.retention import Limits, SegmentFacts, segments_to_drop
from headrace.model.topic_config import TopicConfig
from headrace.wire.errors import ErrorCode, KafkaError
from sim.disk import SimDisk
from tests.unit.log.batches import NOW, batch, from_producer, offsets, open_log

SIZE = len(batch())
DAY_MS = 86_400_000


def log_of(count: int, disk: SimDisk | None = None, *, step_ms: int = 0, **config: object) -> PartitionLog:
    """One record per batch, two batches per segment."""
    log = open_log(disk or SimDisk(), TopicConfig(segment_bytes=2 * SIZE, **config))  # type: ignore[arg-type]
    for number in range(count):
        now_ms = NOW + step_ms * number
        log.append(batch(at=now_ms), 0, now_ms=now_ms)
    return log


def facts(*segments: tuple[int, int, int]) -> list[SegmentFacts]:
    """(size, age of the newest record, records) of each segment, oldest first."""
    made, base = [], 0
    for size, age_ms, count in segments:
        made.append(SegmentFacts(base, size, base + count, lambda age_ms=age_ms: NOW - age_ms))  # type: ignore[misc]
        base += count
    return made


def test_age_is_that_of_the_newest_record_and_a_young_segment_shields_older_ones() -> None:
    limits = Limits(start_offset=0, retention_ms=100, retention_bytes=-1)
    assert segments_to_drop(facts((10, 300, 5), (10, 101, 5), (10, 100, 5)), limits, NOW) == 2
    assert segments_to_drop(facts((10, 100, 5), (10, 300, 5)), limits, NOW) == 0
    assert segments_to_drop(facts((10, 300, 5), (10, 300, 5)), limits, NOW) == 2, "the active one as well"
    assert segments_to_drop(facts((10, 300, 5), (0, 300, 0)), limits, NOW) == 1, "but not an empty one"
    assert segments_to_drop(facts((10, 300, 5)), Limits(0, -1, -1), NOW) == 0


def test_size_takes_segments_only_while_enough_is_left_without_them() -> None:
    three = facts((10, 0, 5), (10, 0, 5), (10, 0, 5))
    assert [segments_to_drop(three, Limits(0, -1, limit), NOW) for limit in (30, 21, 20, 19, 10, 0)] == [
        0,
        0,
        1,
        1,
        2,
        3,
    ]


def test_segments_before_the_start_go() -> None:
    three = facts((10, 0, 5), (10, 0, 5), (10, 0, 5))
    assert [segments_to_drop(three, Limits(start, -1, -1), NOW) for start in (0, 4, 5, 9, 10)] == [0, 0, 1, 1, 2]


def test_old_segments_go_and_their_files_follow_after_the_delay() -> None:
    disk = SimDisk()
    log = log_of(6, disk, step_ms=DAY_MS, retention_ms=3 * DAY_MS)
    now_ms = NOW + 5 * DAY_MS
    assert log.apply_retention(now_ms) == 1
    assert log.start_offset == 2
    assert offsets(log) == [2, 3, 4, 5]
    names = disk.list_dir(log.directory)
    assert "00000000000000000000.log.deleted" in names
    assert "00000000000000000000.log" not in names
    log.apply_retention(now_ms + log.config.file_delete_delay_ms)
    assert not [name for name in disk.list_dir(log.directory) if name.endswith(".deleted")]


def test_retention_takes_nothing_that_is_not_committed() -> None:
    """A log that began behind what is committed could not be led: its readers may see nothing of it."""
    log = log_of(6, retention_ms=DAY_MS)
    log.settle(3)
    assert log.apply_retention(NOW + 2 * DAY_MS) == 1
    assert log.start_offset == 2
    log.settle(6)
    assert log.apply_retention(NOW + 3 * DAY_MS) == 2
    assert log.start_offset == 6


def test_a_power_cut_after_retention_forgets_no_producer_whose_batches_went() -> None:
    """A retry of what it sent would be stored twice."""
    for seed in range(20):
        disk = SimDisk()
        log = open_log(disk, TopicConfig(segment_bytes=2 * SIZE, retention_ms=DAY_MS))
        disk.sync_dir(log.directory.parent.parent)
        disk.sync_dir(log.directory.parent)
        log.append(from_producer(0), 0, now_ms=NOW)
        for _ in range(4):
            log.append(batch(at=NOW), 0, now_ms=NOW)
        log.sync()
        log.append(batch(at=NOW + 2 * DAY_MS), 0, now_ms=NOW + 2 * DAY_MS)
        assert log.apply_retention(NOW + 2 * DAY_MS) == 2
        disk.crash(random.Random(seed))
        again = open_log(disk, log.config)
        assert again.start_offset == 4
        assert list(again.producers.producers) == [7], f"seed {seed}"


def test_a_log_whose_records_are_all_old_is_emptied_and_goes_on_at_its_end() -> None:
    disk = SimDisk()
    log = log_of(3, disk, retention_ms=DAY_MS)
    assert log.apply_retention(NOW + 2 * DAY_MS) == 2
    assert (log.start_offset, log.end_offset) == (3, 3)
    again = open_log(disk, log.config)
    assert (again.start_offset, again.end_offset) == (3, 3)
    assert again.append(batch(at=NOW), 0, now_ms=NOW).base_offset == 3


def test_a_compacted_topic_keeps_old_segments_unless_it_also_deletes() -> None:
    for policy, dropped in ((("compact",), 0), (("compact", "delete"), 2)):
        log = log_of(3, cleanup_policy=policy, retention_ms=DAY_MS)
        assert log.apply_retention(NOW + 2 * DAY_MS) == dropped


def test_retention_by_size_leaves_at_least_that_much() -> None:
    log = log_of(10, retention_bytes=5 * SIZE)
    log.apply_retention(NOW)
    assert offsets(log) == [4, 5, 6, 7, 8, 9]


def test_deleted_records_stay_deleted_after_a_crash() -> None:
    disk = SimDisk()
    log = log_of(7, disk)
    log.advance_start(5)
    assert [segment.base_offset for segment in log.segments] == [4, 6]
    log.advance_start(3)
    assert log.start_offset == 5, "the start never goes back"
    with pytest.raises(KafkaError) as error:
        log.advance_start(8)
    assert error.value.code is ErrorCode.offset_out_of_range
    again = open_log(disk, log.config)
    assert (again.start_offset, offsets(again)) == (5, [5, 6])


def test_everything_can_be_deleted() -> None:
    disk = SimDisk()
    log = log_of(3, disk)
    log.advance_start(3)
    assert offsets(log) == []
    assert log.append(batch(), 0, now_ms=NOW).base_offset == 3
    assert offsets(open_log(disk, log.config)) == [3]


def test_truncation_cuts_between_batches_and_across_segments() -> None:
    for target in range(8):
        disk = SimDisk()
        log = log_of(7, disk)
        log.sync(checkpoint=True)
        log.truncate_to(target)
        assert log.end_offset == min(target, 7)
        assert log.append(batch(), 0, now_ms=NOW).base_offset == min(target, 7)
        assert offsets(log) == list(range(min(target, 7) + 1))
        assert offsets(open_log(disk, log.config)) == list(range(min(target, 7) + 1))


def test_a_batch_that_spans_the_cut_goes_whole() -> None:
    log = open_log(SimDisk())
    log.append(batch(3), 0, now_ms=NOW)
    log.append(batch(3), 0, now_ms=NOW)
    log.truncate_to(4)
    assert log.end_offset == 3


def test_truncation_takes_epochs_sequences_and_times_back() -> None:
    log = open_log(SimDisk(), TopicConfig(segment_bytes=150))
    for sequence in range(6):
        log.append(from_producer(sequence), sequence, now_ms=NOW)
    log.truncate_to(3)
    assert log.epochs.entries == [(0, 0), (1, 1), (2, 2)]
    assert log.append(from_producer(2), 9, now_ms=NOW).duplicate
    assert log.append(from_producer(3), 9, now_ms=NOW).base_offset == 3


def test_a_log_starts_over_at_any_offset() -> None:
    for target in (0, 3, 100):
        disk = SimDisk()
        log = log_of(7, disk)
        log.restart_at(target)
        assert (log.start_offset, log.end_offset, offsets(log)) == (target, target, [])
        assert log.append(batch(), 4, now_ms=NOW).base_offset == target
        again = open_log(disk, log.config)
        assert (again.start_offset, offsets(again)) == (target, [target])
        assert again.epochs.entries == [(4, target)]


def test_producers_are_forgotten_after_a_day_without_a_batch() -> None:
    log = open_log(SimDisk())
    log.append(from_producer(0, producer=1), 0, now_ms=NOW)
    log.append(from_producer(0, producer=2), 0, now_ms=NOW + 1)
    log.apply_retention(NOW + EXPIRY_MS + 1)
    assert list(log.producers.producers) == [2]
    assert log.append(from_producer(7, producer=1), 0, now_ms=NOW).base_offset == 2, "and may go on (KIP-360)"


def test_a_truncation_that_cannot_be_written_off_takes_the_log_offline_and_is_finished_by_the_next_start() -> None:
    disk = SimDisk()
    log = open_log(disk)
    for epoch in range(3):
        log.append(batch(), epoch, now_ms=NOW)
    log.advance_start(1)
    log.sync(checkpoint=True)
    disk.room_bytes = -1000  # others take what the truncation gives back
    with pytest.raises(KafkaError, match="offline"):
        log.truncate_to(2)
    with pytest.raises(KafkaError, match="offline"):
        log.append(batch(), 3, now_ms=NOW)
    assert open_log(disk).offline is not None, "there is no room for that yet"
    disk.room_bytes = None
    log = open_log(disk)
    assert (log.offline, offsets(log)) == (None, [1])
    log.append(batch(), 3, now_ms=NOW)
    assert offsets(open_log(disk)) == [1, 2], "and it is not cut again"


def test_a_truncation_that_a_full_disk_has_interrupted_is_finished_by_the_next_one() -> None:
    for restarted in (False, True):
        disk = SimDisk()
        log = open_log(disk)
        for epoch in range(3):
            log.append(batch(), epoch, now_ms=NOW)
        log.sync(checkpoint=True)
        disk.room_bytes = -1000
        with pytest.raises(KafkaError, match="offline"):
            log.truncate_to(2)
        if restarted:
            log = open_log(disk)
        with pytest.raises(KafkaError, match="offline"):
            log.truncate_to(2)
        disk.room_bytes = None
        log.truncate_to(3)
        assert (log.offline, offsets(log)) == (None, [0, 1]), "as far back as was begun"
        log.append(batch(), 3, now_ms=NOW)
        assert offsets(open_log(disk)) == [0, 1, 2], "and it is not cut again"


def test_a_new_start_that_cannot_be_written_down_can_be_tried_again() -> None:
    disk = SimDisk()
    log = open_log(disk, TopicConfig(segment_bytes=1))
    for epoch in range(4):
        log.append(batch(), epoch, now_ms=NOW)
    log.sync()
    log.epochs.assign(4, log.end_offset)  # to be written with the next name
    disk.room_bytes = 0
    for _ in range(2):
        with pytest.raises(KafkaError, match="no room"):
            log.advance_start(2)
    assert (log.start_offset, offsets(log)) == (0, [0, 1, 2, 3])
    disk.room_bytes = None
    log.advance_start(2)
    assert offsets(open_log(disk)) == [2, 3]
