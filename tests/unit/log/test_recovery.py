"""Opening after a crash: cut at the last whole batch, scan only what was not synced, never lose what was."""

from __future__ import annotations

import random
import struct

import pytest

from headrace.log import checkpoint as checkpoints
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import segment_path
from headrace.model.topic_config import TopicConfig
from headrace.wire.errors import KafkaError
from sim.disk import SimDisk
from tests.unit.log.batches import FOLDER, NOW, batch, from_producer, offsets, open_log

SIZE = len(batch())
FIRST = segment_path(FOLDER, 0, ".log")


def killed(disk: SimDisk, log: PartitionLog) -> PartitionLog:
    """The log as the next process finds it when this one dies, its kernel living on."""
    return open_log(disk, log.config)


def with_folder() -> SimDisk:
    """A disk that has the log's folder for good."""
    disk = SimDisk()
    disk.make_dirs(FOLDER)
    disk.sync_dir(FOLDER.parent.parent)
    disk.sync_dir(FOLDER.parent)
    return disk


def test_a_clean_stop_needs_no_scan() -> None:
    disk = SimDisk()
    log = open_log(disk, TopicConfig(segment_bytes=3 * SIZE))
    for sequence in range(10):
        log.append(from_producer(sequence), sequence // 4, now_ms=NOW)
    log.close()
    again = open_log(disk, log.config)
    assert again.scanned_bytes == 0
    assert (again.end_offset, again.synced_offset) == (10, 10)
    assert again.epochs.entries == [(0, 0), (1, 4), (2, 8)]
    assert again.append(from_producer(9), 2, now_ms=NOW).duplicate
    assert again.append(from_producer(10), 2, now_ms=NOW).base_offset == 10
    assert offsets(again) == list(range(11))


def test_a_second_clean_stop_without_changes_writes_nothing() -> None:
    disk = SimDisk()
    log = open_log(disk)
    log.append(batch(), 0, now_ms=NOW)
    log.close()
    before = disk.read_bytes(FOLDER / checkpoints.NAME)
    open_log(disk).close()
    assert disk.read_bytes(FOLDER / checkpoints.NAME) == before


def test_only_what_lies_behind_the_recovery_point_is_scanned() -> None:
    disk = SimDisk()
    log = open_log(disk)
    for _ in range(100):
        log.append(batch(), 0, now_ms=NOW)
    log.sync(checkpoint=True)
    for _ in range(5):
        log.append(batch(), 0, now_ms=NOW)
    again = killed(disk, log)
    assert again.scanned_bytes == 5 * SIZE
    assert again.end_offset == 105
    assert offsets(again) == list(range(105))


def test_a_torn_tail_is_cut_at_the_last_whole_batch() -> None:
    for torn in range(1, SIZE):
        disk = SimDisk()
        log = open_log(disk)
        for _ in range(3):
            log.append(batch(), 0, now_ms=NOW)
        disk.open(FIRST).truncate(2 * SIZE + torn)
        again = killed(disk, log)
        assert (again.end_offset, again.size_bytes) == (2, 2 * SIZE)
        assert again.append(batch(), 0, now_ms=NOW).base_offset == 2
        assert offsets(again) == [0, 1, 2]


def test_a_flipped_bit_ends_the_log_and_later_segments_go_with_it() -> None:
    disk = SimDisk()
    log = open_log(disk, TopicConfig(segment_bytes=2 * SIZE))
    for _ in range(6):
        log.append(batch(), 0, now_ms=NOW)
    disk.flip_bit(segment_path(FOLDER, 2, ".log"), 8 * (SIZE + 30))
    again = killed(disk, log)
    assert offsets(again) == [0, 1, 2]
    assert sorted(name for name in disk.list_dir(FOLDER) if name.endswith(".log")) == [
        f"{base:020d}.log" for base in (0, 2)
    ]


@pytest.mark.parametrize("field", [(0, ">q"), (12, ">i")], ids=["base offset", "leader epoch"])
@pytest.mark.parametrize("bit", [0, 1, 2, 3, 10, 30])
@pytest.mark.parametrize("at", range(6))
def test_an_offset_or_epoch_outside_the_crc_that_is_not_that_of_its_place_ends_the_log(
    at: int, bit: int, field: tuple[int, str]
) -> None:
    """Each batch before it is kept. Nothing tells a wrong last batch from one behind a gap, or of a new leader."""
    disk = SimDisk()
    log = open_log(disk, TopicConfig(segment_bytes=100 * SIZE))
    for _ in range(6):
        log.append(batch(), 5, now_ms=NOW)
    place, form = field
    file = disk.open(FIRST)
    where = at * SIZE + place
    (value,) = struct.unpack(form, file.pread(struct.calcsize(form), where))
    file.pwrite(struct.pack(form, value ^ (1 << bit)), where)
    again = killed(disk, log)
    rises = value ^ (1 << bit) > value
    if rises and at == 5:
        assert offsets(again)[:5] == list(range(5))
    elif at == 0 and place == 12:
        assert len(offsets(again)) == (1 if rises else 6), "what the first epoch of a log is, nothing tells"
    else:
        assert offsets(again) == list(range(at))


def test_a_batch_that_reaches_into_the_next_segment_ends_the_log() -> None:
    disk = SimDisk()
    log = open_log(disk, TopicConfig(segment_bytes=2 * SIZE))
    for _ in range(6):
        log.append(batch(), 0, now_ms=NOW)
    file = disk.open(FIRST)
    file.pwrite(struct.pack(">q", 4), SIZE)
    again = killed(disk, log)
    assert offsets(again) == [0]


def test_a_follower_s_gap_at_the_end_of_a_log_is_kept() -> None:
    disk = SimDisk()
    log = open_log(disk)
    log.append(batch(), 0, now_ms=NOW)
    sent = bytearray(batch())
    struct.pack_into(">q", sent, 0, 9)
    struct.pack_into(">i", sent, 12, 0)
    log.append_as_follower(memoryview(sent), NOW)
    assert offsets(killed(disk, log)) == [0, 9]


def test_states_are_told_of_no_batch_whose_offsets_are_not_those_of_its_place() -> None:
    disk = SimDisk()
    log = open_log(disk, TopicConfig(segment_bytes=2 * len(from_producer(0))))
    for sequence in range(6):
        log.append(from_producer(sequence), 0, now_ms=NOW)
    log.close()
    file = disk.open(FIRST)
    file.pwrite(struct.pack(">q", 1 << 40), len(from_producer(0)))
    disk.write_atomic(FOLDER / "leader-epoch-checkpoint", b"")
    again = open_log(disk, log.config)
    assert again.epochs.entries == [(0, 0)]
    assert again.end_offset == 6


def test_a_segment_behind_a_hole_is_not_taken_for_the_rest_of_the_log() -> None:
    disk = SimDisk()
    log = open_log(disk, TopicConfig(segment_bytes=2 * SIZE))
    for _ in range(5):
        log.append(batch(), 0, now_ms=NOW)
    disk.open(FIRST).truncate(0)
    again = killed(disk, log)
    assert (again.end_offset, offsets(again)) == (0, [])


def test_bytes_that_were_on_stable_storage_and_are_gone_take_the_log_offline() -> None:
    disk = SimDisk()
    log = open_log(disk)
    for _ in range(3):
        log.append(batch(), 0, now_ms=NOW)
    log.sync(checkpoint=True)
    disk.open(FIRST).truncate(SIZE)
    again = killed(disk, log)
    assert again.offline is not None
    assert "stable storage" in str(again.offline)
    assert disk.file_size(FIRST) == SIZE, "nothing is thrown away before somebody decides"
    disk.remove(FOLDER / checkpoints.NAME)
    assert offsets(killed(disk, log)) == [0]


def test_a_kill_after_all_records_were_deleted_and_a_new_segment_was_begun_damages_nothing() -> None:
    disk = with_folder()
    log = open_log(disk)
    for _ in range(2):
        log.append(batch(), 0, now_ms=NOW)
    log.advance_start(2)
    log.roll(NOW)
    log.append(batch(), 0, now_ms=NOW)
    again = killed(disk, log)
    assert (again.offline, again.start_offset, offsets(again)) == (None, 2, [2])
    assert [segment.base_offset for segment in again.segments] == [2]


def test_epochs_and_sequences_of_the_scanned_part_are_found_again() -> None:
    disk = SimDisk()
    log = open_log(disk)
    log.append(from_producer(0), 1, now_ms=NOW)
    log.sync(checkpoint=True)
    log.append(from_producer(1), 2, now_ms=NOW)
    log.append(from_producer(2), 3, now_ms=NOW)
    again = killed(disk, log)
    assert again.epochs.entries == [(1, 0), (2, 1), (3, 2)]
    for sequence in range(3):
        assert again.append(from_producer(sequence), 3, now_ms=NOW).base_offset == sequence


def test_a_damaged_producer_snapshot_is_replaced_by_the_headers() -> None:
    disk = SimDisk()
    log = open_log(disk)
    for sequence in range(3):
        log.append(from_producer(sequence), 0, now_ms=NOW)
    log.close()
    disk.flip_bit(segment_path(FOLDER, 3, ".snapshot"), 100)
    again = open_log(disk)
    assert again.append(from_producer(2), 0, now_ms=NOW).duplicate


def test_whatever_was_synced_survives_a_power_cut_in_fifty_ways() -> None:
    for seed in range(50):
        rng = random.Random(seed)
        disk = with_folder()
        log = open_log(disk, TopicConfig(segment_bytes=4 * SIZE))
        for number in range(20):
            log.append(batch(), 0, now_ms=NOW)
            if number == 9:
                log.sync(checkpoint=rng.random() < 0.5)
        disk.crash(rng)
        again = open_log(disk, log.config)
        assert 10 <= again.end_offset <= 20, f"seed {seed}"
        assert offsets(again) == list(range(again.end_offset)), f"seed {seed}"


def test_a_truncation_that_a_crash_interrupts_is_finished_at_the_next_start() -> None:
    disk = SimDisk()
    log = open_log(disk, TopicConfig(segment_bytes=2 * SIZE))
    for _ in range(6):
        log.append(batch(), 0, now_ms=NOW)
    log.sync(checkpoint=True)
    point = checkpoints.load(disk, FOLDER)
    assert point is not None
    checkpoints.settle(disk, FOLDER, checkpoints.Checkpoint(point.generation, truncate_to=3))
    disk.remove(segment_path(FOLDER, 2, ".log"))
    again = open_log(disk, log.config)
    assert offsets(again) == [0, 1]
    point = checkpoints.load(disk, FOLDER)
    assert point is not None
    assert point.truncate_to is None


def test_times_before_a_truncation_are_found_after_a_crash() -> None:
    disk = SimDisk()
    log = open_log(disk)
    for _ in range(3):
        log.append(batch(), 0, now_ms=NOW)
    log.close()
    log = open_log(disk)
    log.truncate_to(1)
    again = killed(disk, log)
    assert again.find_time(NOW, 1) == (0, NOW)
    assert again.find_max_timestamp(1) == (0, NOW)


def test_an_index_of_bytes_that_are_gone_never_comes_back() -> None:
    """The log may grow to the size that the old index speaks of, with other batches."""
    index = segment_path(FOLDER, 0, ".index")
    disk = SimDisk()
    log = open_log(disk, TopicConfig(index_interval_bytes=1))
    for _ in range(3):
        log.append(batch(), 0, now_ms=NOW)
    log.sync(checkpoint=True)
    assert disk.exists(index)
    log.truncate_to(1)
    disk.crash(random.Random(0))
    assert not disk.exists(index)
    log = open_log(disk, TopicConfig(index_interval_bytes=1))
    log.append(batch(20), 0, now_ms=NOW)
    log.append(batch(), 0, now_ms=NOW)
    log.roll(NOW)
    log.sync()  # with the index of the sealed segment, but without a checkpoint
    disk.open(FIRST).truncate(SIZE)  # as a power cut may do with what was not synced
    assert log.segments[0].stored_index().reach > SIZE
    log = killed(disk, log)
    assert log.end_offset == 1
    assert log.segments[0].stored_index().reach <= SIZE


def test_what_a_failed_write_has_left_does_not_come_back_into_a_sealed_segment() -> None:
    for seed in range(30):
        disk = with_folder()
        log = open_log(disk)
        log.append(batch(), 0, now_ms=NOW)
        log.sync(checkpoint=True)
        disk.room_bytes = 1
        with pytest.raises(KafkaError):
            log.append(batch(), 0, now_ms=NOW)
        disk.room_bytes = None
        log.roll(NOW)
        log.append(batch(), 0, now_ms=NOW)
        log.sync(checkpoint=True)
        disk.crash(random.Random(seed))
        assert offsets(open_log(disk)) == [0, 1], f"seed {seed}"


def test_a_failed_write_that_cannot_be_taken_back_takes_the_log_offline() -> None:
    disk = SimDisk()
    log = open_log(disk)
    log.append(batch(), 0, now_ms=NOW)
    disk.room_bytes, disk.fail_syncs = 1, 1
    with pytest.raises(KafkaError):
        log.append(batch(), 0, now_ms=NOW)
    disk.room_bytes = None
    with pytest.raises(KafkaError, match="offline"):
        log.append(batch(), 0, now_ms=NOW)
