"""Compaction of a log: the last record of each key stays at its offset, in fewer files, through every crash."""

from __future__ import annotations

import random

from headrace.log import recovery
from headrace.log.compaction import Compactor, is_due
from headrace.log.partition_log import PartitionLog
from headrace.model.topic_config import TopicConfig
from headrace.wire.batches import read_header, walk
from headrace.wire.record import Record
from headrace.wire.records import encode_batch
from sim.disk import SimDisk
from tests.unit.log.batches import FOLDER, NOW, new_shelf, offsets, open_log, read_all

DAY_MS = 86_400_000
CONFIG = TopicConfig(cleanup_policy=("compact",), segment_bytes=400)


def put(log: PartitionLog, key: bytes, value: bytes | None, *, at: int = NOW, sequence: int = -1) -> int:
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence} if sequence >= 0 else {}
    records = memoryview(encode_batch([Record(0, at, key, value)], **producer))
    return log.append(records, 0, now_ms=at).base_offset


def compact(log: PartitionLog, now_ms: int = NOW, *, key_map_bytes: int = 1 << 20) -> None:
    Compactor(new_shelf(log._shelf.disk), step_bytes=300, key_map_bytes=key_map_bytes).compact(log, now_ms)


def filled(disk: SimDisk, rounds: int = 10, config: TopicConfig = CONFIG) -> PartitionLog:
    """Keys a, b and c over and over, then a new active segment."""
    log = open_log(disk, config)
    for number in range(rounds):
        for key in (b"a", b"b", b"c"):
            put(log, key, b"%d" % number)
    log.roll(NOW)
    return log


def test_the_last_record_of_each_key_stays_where_it_was() -> None:
    log = filled(SimDisk())
    size = log.size_bytes
    compact(log)
    assert [(r.offset, r.key, r.value) for r in read_all(log)] == [(27, b"a", b"9"), (28, b"b", b"9"), (29, b"c", b"9")]
    assert (log.start_offset, log.end_offset) == (0, 30)
    assert log.size_bytes < size / 2


def test_a_batch_in_whose_middle_the_log_starts_is_compacted_too() -> None:
    log = open_log(SimDisk(), CONFIG)
    log.append(memoryview(encode_batch([Record(at, NOW, b"k", b"%d" % at) for at in range(3)])), 0, now_ms=NOW)
    log.roll(NOW)
    log.advance_start(1)
    compact(log)
    assert offsets(log) == [2]


def test_neighbours_that_have_become_small_are_joined() -> None:
    log = filled(SimDisk())
    compact(log)
    before = len(log.segments)
    put(log, b"a", b"new")
    log.roll(NOW)
    compact(log)
    assert len(log.segments) < before
    assert offsets(log) == [28, 29, 30]


def test_a_reader_in_a_gap_is_given_what_comes_next() -> None:
    log = filled(SimDisk())
    compact(log)
    for offset in range(30):
        data = log.read(offset, 1, 30, at_least_one=True).load()
        assert data, f"offset {offset}"


def test_a_consumer_is_given_records_or_a_marker_over_offsets_that_have_none() -> None:
    log = filled(SimDisk())
    compact(log)
    counts = [
        [
            header.record_count
            for _, header in walk(log.read(offset, 1, 30, at_least_one=True, for_consumer=True).load())
        ]
        for offset in range(30)
    ]
    assert all(sum(found) for found in counts), counts
    for _ in range(8):
        put(log, b"a", b"old")
    log.roll(NOW)
    put(log, b"a", b"new")
    log.roll(NOW)
    compact(log)
    data = log.read(30, 1000, 38, at_least_one=True, for_consumer=True).load()
    assert [(header.record_count, header.base_offset, header.next_offset) for _, header in walk(data)] == [(1, 30, 35)]
    assert read_header(data).is_control


def test_the_active_segment_is_left_alone_and_counts_for_nobody() -> None:
    log = filled(SimDisk(), rounds=2)
    put(log, b"a", b"new")
    compact(log)
    assert [r.value for r in read_all(log) if r.key == b"a"] == [b"1", b"new"]


def test_tombstones_stay_for_their_time_and_then_go() -> None:
    log = filled(SimDisk())
    put(log, b"a", None)
    log.roll(NOW)
    compact(log, NOW)
    assert [(r.key, r.value) for r in read_all(log)] == [(b"b", b"9"), (b"c", b"9"), (b"a", None)]
    put(log, b"d", b"1")
    log.roll(NOW)
    compact(log, NOW + DAY_MS - 1)
    assert b"a" in {r.key for r in read_all(log)}
    put(log, b"d", b"2")
    log.roll(NOW)
    compact(log, NOW + DAY_MS)
    assert [(r.key, r.value) for r in read_all(log)] == [(b"b", b"9"), (b"c", b"9"), (b"d", b"2")]


def test_sequences_survive_compaction_and_a_lost_snapshot() -> None:
    disk = SimDisk()
    log = open_log(disk, CONFIG)
    for sequence in range(5):
        put(log, b"a", b"x", sequence=sequence)
    put(log, b"a", b"last")
    log.roll(NOW)
    compact(log)
    assert [r.value for r in read_all(log)] == [b"last"]
    for name in disk.list_dir(FOLDER):
        if name.endswith(".snapshot"):
            disk.remove(FOLDER / name)
    again = open_log(disk, CONFIG)
    retry = memoryview(
        encode_batch([Record(0, NOW, b"a", b"x")], producer_id=7, producer_epoch=0, base_sequence=4)
    )  # fmt: skip
    assert again.append(retry, 0, now_ms=NOW).base_offset == 4


def test_a_small_key_map_takes_several_runs_and_comes_to_the_same_end() -> None:
    log = open_log(SimDisk(), CONFIG)
    for number in range(60):
        put(log, b"%d" % (number % 12), b"%d" % number)
    log.roll(NOW)
    for _ in range(20):
        compact(log, key_map_bytes=1000)
    assert log.cleaned_to == 60
    assert {r.key for r in read_all(log)} == {b"%d" % number for number in range(12)}
    assert offsets(log)[-12:] == list(range(48, 60))


def test_it_is_due_when_enough_is_dirty_and_old_enough() -> None:
    log = open_log(SimDisk(), TopicConfig(cleanup_policy=("compact",), min_compaction_lag_ms=1000))
    assert not is_due(log, NOW)
    put(log, b"a", b"1")
    assert not is_due(log, NOW + 5000), "the active segment does not count"
    log.roll(NOW)
    assert not is_due(log, NOW + 999)
    assert is_due(log, NOW + 1000)
    compact(log, NOW + 1000)
    assert not is_due(log, NOW + 5000)


def test_what_was_cleaned_is_remembered_after_a_restart() -> None:
    disk = SimDisk()
    log = filled(disk)
    compact(log)
    log.close()
    again = open_log(disk, CONFIG)
    assert again.scanned_bytes == 0
    assert not is_due(again, NOW)
    assert offsets(again) == [27, 28, 29]


def test_a_crash_at_any_step_leaves_every_last_record() -> None:
    for crash_after in range(25):
        disk = SimDisk()
        disk.make_dirs(FOLDER)
        disk.sync_dir(FOLDER.parent.parent)
        disk.sync_dir(FOLDER.parent)
        log = filled(disk)
        log.sync()
        steps = Compactor(new_shelf(disk), step_bytes=300).steps(log, NOW)
        for _ in range(crash_after):
            next(steps, None)
        disk.crash(random.Random(crash_after))
        again = open_log(disk, CONFIG)
        assert {r.key: r.value for r in read_all(again)} == dict.fromkeys((b"a", b"b", b"c"), b"9")
        compact(again)
        assert offsets(again) == [27, 28, 29]


def test_a_durable_swap_is_finished_by_the_next_start() -> None:
    disk = SimDisk()
    log = filled(disk)
    old = [segment.base_offset for segment in log.segments]
    compact(log)
    compacted = disk.read_bytes(log.segments[0].file.path)
    other = SimDisk()
    log = filled(other)
    log.close()
    file = other.open(FOLDER / recovery.swap_name(0, old[-1]), create=True)
    file.append((compacted,))
    again = open_log(other, CONFIG)
    assert again.segments[0].size == len(compacted)
    assert not [name for name in other.list_dir(FOLDER) if name.endswith(".swap")]


def test_a_log_that_was_truncated_meanwhile_is_not_swapped() -> None:
    log = filled(SimDisk())
    steps = Compactor(new_shelf(log._shelf.disk), step_bytes=300).steps(log, NOW)
    while not [name for name in log._shelf.disk.list_dir(FOLDER) if name.endswith(".cleaned")]:
        next(steps)
    log.truncate_to(5)
    for _ in steps:
        pass
    assert offsets(log) == [0, 1, 2, 3, 4]
    assert not [name for name in log._shelf.disk.list_dir(FOLDER) if name.endswith(".cleaned")]


def test_no_record_goes_for_one_that_a_power_cut_can_still_take() -> None:
    for seed in range(20):
        disk = SimDisk()
        disk.make_dirs(FOLDER)
        disk.sync_dir(FOLDER.parent.parent)
        disk.sync_dir(FOLDER.parent)
        log = open_log(disk, TopicConfig(cleanup_policy=("compact",), segment_bytes=100))
        put(log, b"a", b"synced")
        log.roll(NOW)
        log.sync()
        put(log, b"a", b"later")
        put(log, b"b", b"and more")
        log.roll(NOW)
        steps = Compactor(new_shelf(disk)).steps(log, NOW)
        while not any(name.endswith(".deleted") for name in disk.list_dir(FOLDER)):
            next(steps)
        disk.crash(random.Random(seed))
        assert b"a" in {r.key for r in read_all(open_log(disk, log.config)) if r.value}, f"seed {seed}"
