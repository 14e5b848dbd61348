"""Deduplication by message id in a log: what is stored, what only acknowledged, what is known after a restart."""

from __future__ import annotations

import random
from contextlib import suppress
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log import opening
from headrace.log.appended import Appended
from headrace.log.opening import Unprepared
from headrace.log.partition_log import PartitionLog
from headrace.model.topic_config import TopicConfig
from headrace.wire import compression
from headrace.wire.batches import TRANSACTIONAL, read_header, restamp_crc, walk
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.record import Record
from headrace.wire.records import decode, encode_batch
from sim.disk import SimDisk
from tests.unit.log.batches import FOLDER, NOW, append, open_log, read_all

WINDOW_MS = 60_000
CONFIG = TopicConfig(dedup_window_ms=WINDOW_MS)


def batch_of(
    *ids: bytes | None,
    producer: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    attributes: int = 0,
    codec: int = 0,
) -> memoryview:
    """One record for each id; its value names it."""
    records = [
        Record(at, NOW + at, b"k", name, () if name is None else (("other", b"x"), ("headrace.id", name)))
        for at, name in enumerate(ids)
    ]
    return memoryview(
        encode_batch(
            records,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            attributes=attributes,
            codec=codec,
        )
    )


def put(log: PartitionLog, *ids: bytes | None, at: int = NOW) -> Appended:
    return log.append(batch_of(*ids), 0, now_ms=at)


class Writer:
    """A transactional producer."""

    def __init__(self, log: PartitionLog, producer: int) -> None:
        self.log = log
        self.producer = producer
        self.epoch = 0
        self.sequence = 0

    def put(self, *ids: bytes, at: int = NOW) -> None:
        records = batch_of(
            *ids, producer=self.producer, epoch=self.epoch, sequence=self.sequence, attributes=TRANSACTIONAL
        )
        self.sequence += len(ids)
        self.log.append(records, 0, now_ms=at, transactional=True)

    def end(self, *, commit: bool, at: int = NOW) -> None:
        self.epoch, self.sequence = self.epoch + 1, 0
        self.log.append_marker(self.producer, self.epoch, 0, commit, 0, strict=True, now_ms=at)


def stored(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    return [(r.offset, r.value) for r in read_all(log) if r.key == b"k"]


# -- what is stored ---------------------------------------------------------------------------------------------------


def test_a_record_with_a_known_id_is_acknowledged_and_not_stored() -> None:
    log = open_log(SimDisk(), CONFIG)
    assert put(log, b"a", b"b").base_offset == 0
    again = put(log, b"b", b"c", b"a")
    assert (again.base_offset, again.last_offset, again.duplicate) == (2, 4, False)
    assert put(log, b"d").base_offset == 5
    assert stored(log) == [(0, b"a"), (1, b"b"), (3, b"c"), (5, b"d")]
    assert (log.duplicates_dropped, log.ids_forgotten) == (2, 0)


def test_records_without_an_id_and_with_an_empty_one_are_all_stored() -> None:
    log = open_log(SimDisk(), CONFIG)
    for _ in range(2):
        put(log, None, b"", None)
    assert [offset for offset, _ in stored(log)] == list(range(6))


def test_an_id_counts_twice_in_one_batch_and_in_one_request() -> None:
    log = open_log(SimDisk(), CONFIG)
    put(log, b"a", b"a")
    both = memoryview(bytearray(batch_of(b"b")) + bytearray(batch_of(b"b", b"c")))
    assert log.append(both, 0, now_ms=NOW).last_offset == 4
    assert stored(log) == [(0, b"a"), (2, b"b"), (4, b"c")]


def test_the_first_header_of_that_name_is_the_id() -> None:
    log = open_log(SimDisk(), CONFIG)
    for value in (b"1", b"2"):
        headers = (("headrace.id", b"same"), ("headrace.id", value))
        log.append(memoryview(encode_batch([Record(0, NOW, b"k", value, headers)])), 0, now_ms=NOW)
    assert stored(log) == [(0, b"1")]


def test_the_window_is_that_of_the_stored_record() -> None:
    log = open_log(SimDisk(), CONFIG)
    put(log, b"a")
    put(log, b"a", at=NOW + WINDOW_MS - 1)  # dropped, and not counted anew
    put(log, b"a", at=NOW + WINDOW_MS)
    put(log, b"a", at=NOW + 2 * WINDOW_MS - 1)
    put(log, b"a", at=NOW + 2 * WINDOW_MS)
    assert [offset for offset, _ in stored(log)] == [0, 2, 4]


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_that_loses_records_keeps_all_else(codec: int) -> None:
    log = open_log(SimDisk(), CONFIG)
    put(log, b"a")
    log.append(batch_of(b"x", b"a", b"y", producer=7, epoch=0, sequence=0, codec=codec), 3, now_ms=NOW)
    log.append(batch_of(b"a", b"a", producer=7, epoch=0, sequence=3, codec=codec), 3, now_ms=NOW)
    data = log.read(1, 1 << 20, log.end_offset, at_least_one=True).load()
    filtered, emptied = [header for _, header in walk(data)]
    assert (filtered.base_offset, filtered.last_offset, filtered.record_count) == (1, 3, 2)
    assert (filtered.producer_id, filtered.producer_epoch, filtered.base_sequence) == (7, 0, 0)
    assert (filtered.leader_epoch, filtered.codec) == (3, codec)
    assert (filtered.base_timestamp, filtered.max_timestamp) == (NOW, NOW + 2)
    assert [(r.offset, r.timestamp, r.value) for r in decode(data)] == [(1, NOW, b"x"), (3, NOW + 2, b"y")]
    assert (emptied.base_offset, emptied.last_offset, emptied.record_count) == (4, 5, 0)
    assert (emptied.producer_id, emptied.base_sequence, emptied.last_sequence) == (7, 3, 4)
    assert emptied.codec == compression.NONE


def test_sequences_go_on_behind_what_was_dropped_also_after_a_crash() -> None:
    disk = SimDisk()
    log = open_log(disk, CONFIG)
    put(log, b"a")
    sent = [batch_of(b"a", producer=7, epoch=0, sequence=0), batch_of(b"a", producer=7, epoch=0, sequence=1)]
    for number, records in enumerate(sent):
        assert log.append(records, 0, now_ms=NOW).base_offset == 1 + number
    for again in (log, open_log(disk, CONFIG)):
        retried = again.append(batch_of(b"a", producer=7, epoch=0, sequence=1), 0, now_ms=NOW)
        assert (retried.base_offset, retried.duplicate) == (2, True)
        assert again.producers.producers[7].batches[-1].last_sequence == 1


def test_what_is_not_written_counts_for_nothing() -> None:
    disk = SimDisk()
    log = open_log(disk, CONFIG)
    disk.room_bytes = 10
    with pytest.raises(KafkaError):
        put(log, b"a")
    disk.room_bytes = None
    put(log, b"a")
    assert stored(log) == [(0, b"a")]


def test_a_batch_that_cannot_be_opened_is_refused() -> None:
    log = open_log(SimDisk(), CONFIG)
    garbled = bytearray(batch_of(b"a"))
    garbled[61] = 0xFF
    header = read_header(garbled)
    restamp_crc(garbled, 0, header.length)
    with pytest.raises(KafkaError) as refused:
        log.append(memoryview(garbled), 0, now_ms=NOW)
    assert refused.value.code is ErrorCode.invalid_record


def test_the_brokers_own_records_are_not_looked_at() -> None:
    log = open_log(SimDisk(), CONFIG)
    for _ in range(2):
        log.append(batch_of(b"a"), 0, now_ms=NOW, internal=True)
    assert [offset for offset, _ in stored(log)] == [0, 1]


# -- transactions -----------------------------------------------------------------------------------------------------


def test_an_id_counts_when_its_transaction_commits_and_never_if_it_aborts() -> None:
    log = open_log(SimDisk(), CONFIG)
    writer, other = Writer(log, 7), Writer(log, 8)
    writer.put(b"a", b"b")  # 0, 1
    writer.put(b"b")  # 2: its own transaction has it
    other.put(b"a")  # 3: another that is open does not count
    put(log, b"b")  # 4: nor does it for records outside
    writer.end(commit=False)  # 5
    put(log, b"a")  # 6
    other.put(b"a")  # 7
    other.put(b"c")  # 8
    other.end(commit=True)  # 9
    put(log, b"c", b"a", b"d")  # 10, 11, 12
    assert [offset for offset, _ in stored(log)] == [0, 1, 3, 4, 6, 8, 12]


def test_the_window_of_a_transaction_begins_with_its_commit() -> None:
    log = open_log(SimDisk(), CONFIG)
    writer = Writer(log, 7)
    writer.put(b"a")
    writer.end(commit=True, at=NOW + WINDOW_MS)
    put(log, b"a", at=NOW + 2 * WINDOW_MS - 1)
    put(log, b"a", at=NOW + 2 * WINDOW_MS)
    assert [offset for offset, _ in stored(log)] == [0, 3]


def test_a_transaction_whose_records_were_all_dropped_is_open_and_ends() -> None:
    log = open_log(SimDisk(), CONFIG)
    put(log, b"a")
    writer = Writer(log, 7)
    writer.put(b"a")
    assert log.has_open_transaction(7, 0)
    assert log.first_unstable_offset(2) == 1
    writer.end(commit=True)
    assert log.first_unstable_offset(3) is None


# -- restarts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "kill", "kill after a sync", "without files", "after a roll"])
def test_ids_are_known_after_a_restart(how: str) -> None:
    disk = SimDisk()
    log = open_log(disk, CONFIG)
    put(log, b"a")
    put(log, b"old", at=NOW - 2 * WINDOW_MS)
    done, aborted, still_open = Writer(log, 7), Writer(log, 8), Writer(log, 9)
    for writer, name in ((done, b"done"), (aborted, b"aborted"), (still_open, b"open")):
        writer.put(name)
    done.end(commit=True)
    if how == "kill after a sync":
        log.sync()
    elif how == "after a roll":
        log.roll(NOW)
        log.sync()
        put(log, b"later")
    aborted.end(commit=False)
    if how in ("stop", "without files"):
        log.close()
    if how == "without files":
        for name in disk.list_dir(FOLDER):
            if name.endswith(".ids"):
                disk.remove(FOLDER / name)
    log = open_log(disk, CONFIG)
    end = log.end_offset
    put(log, b"a", b"done", b"aborted", b"open")
    assert [value for offset, value in stored(log) if offset >= end] == [b"aborted", b"open"]
    still_open.log = log
    still_open.end(commit=True)
    before = log.end_offset
    put(log, b"open", b"new")
    assert [value for offset, value in stored(log) if offset >= before] == [b"new"]


def test_after_a_clean_stop_ids_keep_their_time() -> None:
    disk = SimDisk()
    log = open_log(disk, CONFIG)
    put(log, b"a")
    log.close()
    log = open_log(disk, CONFIG, now_ms=NOW + WINDOW_MS - 1)
    put(log, b"a", at=NOW + WINDOW_MS - 1)
    log.close()
    log = open_log(disk, CONFIG, now_ms=NOW + WINDOW_MS)
    put(log, b"a", at=NOW + WINDOW_MS)
    assert [offset for offset, _ in stored(log)] == [0, 2]


@pytest.mark.parametrize("value", [b"v", bytes(1 << 20)])
def test_a_follower_learns_the_ids_of_what_its_leader_sends(value: bytes) -> None:
    leader, follower = (open_log(SimDisk(), CONFIG) for _ in range(2))
    records = [Record(at, NOW, b"k", value, (("headrace.id", name),)) for at, name in enumerate((b"a", b"b"))]
    append(leader, memoryview(encode_batch(records, codec=compression.ZSTD)))
    sent = memoryview(bytearray(leader.read(0, 1 << 30, 2, at_least_one=True).load()))
    try:
        scanned = follower.scanned(sent)
        assert len(value) == 1
    except Unprepared as unprepared:
        assert len(value) > 1
        scanned = unprepared.step(sent)
    follower.append_as_follower(sent, NOW, scanned)
    put(follower, b"b", b"c")
    assert [offset for offset, _ in stored(follower)] == [0, 1, 3]


@given(st.data())
def test_a_follower_looks_into_any_bytes_without_harm(data: st.DataObject) -> None:
    follower = open_log(SimDisk(), CONFIG)
    damaged = bytearray(batch_of(b"a", b"b", codec=data.draw(st.integers(0, 4))))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(Unprepared):
        follower.scanned(memoryview(damaged))


def test_a_follower_takes_as_many_batches_as_it_knows_the_ids_of() -> None:
    leader, follower = (open_log(SimDisk(), CONFIG) for _ in range(2))
    for name in (b"a", b"b", b"c"):
        put(leader, name)
    sent = memoryview(bytearray(leader.read(0, 1 << 20, 3, at_least_one=True).load()))
    with patch.object(opening, "ON_LOOP_BYTES", 0), patch.object(opening, "MOST_SCANNED", 2):
        with pytest.raises(Unprepared) as unprepared:
            follower.scanned(sent)
        follower.append_as_follower(sent, NOW, unprepared.value.step(sent))
    assert follower.end_offset == 2


def test_a_truncated_record_frees_its_id_and_no_other() -> None:
    disk = SimDisk()
    log = open_log(disk, CONFIG)
    put(log, b"a")
    put(log, b"b")
    log.sync()
    put(log, b"c")
    log.truncate_to(1)
    put(log, b"a", b"b")
    assert stored(log) == [(0, b"a"), (2, b"b")]
    log.sync()
    again = open_log(disk, CONFIG)
    put(again, b"a", b"b", b"c")
    assert stored(again) == [(0, b"a"), (2, b"b"), (5, b"c")]


def test_a_log_that_starts_over_knows_no_ids() -> None:
    log = open_log(SimDisk(), CONFIG)
    put(log, b"a")
    log.sync()
    log.restart_at(100)
    put(log, b"a")
    assert stored(log) == [(100, b"a")]


@pytest.mark.parametrize("choice", range(10))
def test_ids_outlive_their_deleted_records_after_a_power_cut_that_their_file_did_not_survive(choice: int) -> None:
    disk = SimDisk()
    disk.make_dirs(FOLDER)
    for folder in (FOLDER.parent.parent, FOLDER.parent):
        disk.sync_dir(folder)
    log = open_log(disk, CONFIG)
    put(log, b"a", b"b")
    log.advance_start(2)
    disk.crash(random.Random(choice))
    again = open_log(disk, CONFIG)
    assert (again.offline, again.start_offset, again.end_offset) == (None, 2, 2)
    put(again, b"a", b"b", b"c")
    assert [record.value for record in read_all(again)] == [b"c"]


def test_ids_outlive_their_deleted_records() -> None:
    log = open_log(SimDisk(), CONFIG)
    put(log, b"a")
    log.advance_start(1)
    put(log, b"a")
    assert stored(log) == []


def test_files_go_when_their_ids_are_too_old() -> None:
    disk = SimDisk()
    log = open_log(disk, CONFIG)
    for minute in range(10):
        at = NOW + minute * WINDOW_MS
        put(log, b"%d" % minute, at=at)
        log.sync()
    names = [name for name in disk.list_dir(FOLDER) if name.endswith(".ids")]
    assert 1 <= len(names) <= 3


def test_files_with_ids_of_an_open_transaction_stay() -> None:
    disk = SimDisk()
    log = open_log(disk, CONFIG)
    writer = Writer(log, 7)
    writer.put(b"mine")
    for minute in range(5):
        put(log, b"%d" % minute, at=NOW + minute * WINDOW_MS)
        log.sync()
    now_ms = NOW + 5 * WINDOW_MS
    log.close()
    log = writer.log = open_log(disk, CONFIG, now_ms=now_ms)
    writer.end(commit=True, at=now_ms)
    before = log.end_offset
    put(log, b"mine", at=now_ms)
    assert [value for offset, value in stored(log) if offset >= before] == []


# -- settings ---------------------------------------------------------------------------------------------------------


def test_it_can_be_switched_on_and_off() -> None:
    disk = SimDisk()
    log = open_log(disk)
    put(log, b"a")
    put(log, b"a")
    log.reconfigure(CONFIG)
    put(log, b"a")  # from now on it counts
    put(log, b"a")
    log.reconfigure(TopicConfig(dedup_window_ms=2 * WINDOW_MS))
    put(log, b"a", at=NOW + WINDOW_MS)
    log.reconfigure(TopicConfig())
    put(log, b"a")
    assert [offset for offset, _ in stored(log)] == [0, 1, 2, 5]
    assert not [name for name in disk.list_dir(FOLDER) if name.endswith(".ids")]


def test_where_memory_is_short_the_oldest_ids_go_first_and_are_counted() -> None:
    log = open_log(SimDisk(), TopicConfig(dedup_window_ms=WINDOW_MS, dedup_max_bytes=100 * 192))
    for number in range(150):
        put(log, b"%d" % number)
    assert log.duplicates_dropped == 0
    assert 50 <= log.ids_forgotten <= 60
    assert log.dedup is not None
    assert len(log.dedup.window) <= 100
    put(log, b"0")
    put(log, b"149")
    assert log.duplicates_dropped == 1


def test_a_follower_knows_the_ids_of_its_leader() -> None:
    leader, follower = open_log(SimDisk(), CONFIG), open_log(SimDisk(), CONFIG)
    writer = Writer(leader, 7)
    put(leader, b"a", b"b")
    put(leader, b"b", b"c")
    writer.put(b"d")
    writer.end(commit=True)
    data = leader.read(0, 1 << 20, leader.end_offset, at_least_one=True).load()
    follower.append_as_follower(memoryview(data), NOW)
    assert stored(follower) == stored(leader)
    put(follower, b"a", b"b", b"c", b"d", b"e")
    assert stored(follower)[len(stored(leader)) :] == [(10, b"e")]
