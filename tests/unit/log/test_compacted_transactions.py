"""Compaction of a log with transactions: aborted records go, open ones stay, markers outlive their records."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from headrace.log import recovery
from headrace.log.compaction import Compactor, dirty_segments
from headrace.log.partition_log import PartitionLog
from headrace.model.topic_config import TopicConfig
from headrace.wire.batches import DELETE_HORIZON, TRANSACTIONAL, BatchHeader, walk
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.record import Record
from headrace.wire.records import decode, encode_batch
from sim.disk import SimDisk
from tests.unit.log.batches import FOLDER, NOW, new_shelf, open_log, read_all

DAY_MS = 86_400_000
CONFIG = TopicConfig(cleanup_policy=("compact",), segment_bytes=400)


class Writer:
    """A transactional producer with one epoch for each transaction."""

    def __init__(self, log: PartitionLog, producer: int) -> None:
        self.log = log
        self.producer = producer
        self.epoch = 0
        self.sequence = 0

    def put(self, key: bytes, value: bytes | None = b"v") -> int:
        encoded = encode_batch(
            [Record(0, NOW, key, value)],
            producer_id=self.producer,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            attributes=TRANSACTIONAL,
        )
        self.sequence += 1
        return self.log.append(memoryview(encoded), 0, now_ms=NOW, transactional=True).base_offset

    def end(self, *, commit: bool) -> int:
        self.epoch += 1
        self.sequence = 0
        appended = self.log.append_marker(self.producer, self.epoch, 0, commit, 0, strict=True, now_ms=NOW)
        self.log.first_unstable_offset(self.log.end_offset)  # all of it is committed
        return appended.base_offset


def put(log: PartitionLog, key: bytes) -> int:
    return log.append(memoryview(encode_batch([Record(0, NOW, key, b"v")])), 0, now_ms=NOW).base_offset


def compact(log: PartitionLog, now_ms: int = NOW) -> None:
    """One run, whatever there is to do; a new key makes the log dirty."""
    put(log, b"run %d" % log.end_offset)
    log.roll(NOW)
    log.settle(log.end_offset)
    Compactor(new_shelf(log._shelf.disk), step_bytes=300).compact(log, now_ms)


def data_offsets(log: PartitionLog) -> list[int]:
    return [record.offset for record in read_all(log) if record.key and not record.key.startswith((b"run", b"\0"))]


def markers(log: PartitionLog) -> dict[int, BatchHeader]:
    """The markers that are left, by offset; empty ones are none."""
    found: dict[int, BatchHeader] = {}
    for segment in log.segments:
        for _, header in segment.headers(0, segment.size, wait=True):
            if header.is_control and header.record_count:
                found[header.base_offset] = header
    return found


def test_aborted_records_go_and_supersede_nothing() -> None:
    log = open_log(SimDisk(), CONFIG)
    writer = Writer(log, 7)
    kept = put(log, b"a")
    writer.put(b"a")
    writer.put(b"b")
    writer.end(commit=False)
    committed = writer.put(b"b")
    writer.end(commit=True)
    compact(log)
    assert data_offsets(log) == [kept, committed]


def test_nothing_is_compacted_from_an_open_transaction_on() -> None:
    log = open_log(SimDisk(), CONFIG)
    for _ in range(12):
        put(log, b"a")
    writer = Writer(log, 7)
    start = writer.put(b"a")
    for _ in range(12):
        put(log, b"a")
    compact(log)
    left = data_offsets(log)
    assert {start, *range(start + 1, start + 13)} <= set(left)
    assert 0 not in left, "what lies before it in a sealed segment is compacted"
    writer.end(commit=True)
    compact(log)
    assert data_offsets(log) == [start + 12]


def test_an_end_that_is_not_committed_does_not_count_for_compaction() -> None:
    log = open_log(SimDisk(), CONFIG)
    writer = Writer(log, 7)
    writer.put(b"a")
    log.append_marker(7, 1, 0, True, 0, strict=True, now_ms=NOW)
    log.roll(NOW)
    assert not dirty_segments(log, NOW)
    log.first_unstable_offset(2)
    assert dirty_segments(log, NOW)


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_outlives_its_records_by_the_delete_retention(commit: bool) -> None:
    log = open_log(SimDisk(), CONFIG)
    writer, later = Writer(log, 7), Writer(log, 8)
    writer.put(b"a")
    marker = writer.end(commit=commit)
    writer.put(b"x")
    writer.end(commit=True)
    put(log, b"a")
    compact(log)
    assert not markers(log)[marker].attributes & DELETE_HORIZON, "its records went only now"
    compact(log)
    header = markers(log)[marker]
    assert header.attributes & DELETE_HORIZON
    assert (header.base_timestamp, header.max_timestamp) == (NOW + CONFIG.delete_retention_ms, NOW)
    compact(log, NOW + CONFIG.delete_retention_ms - 1)
    assert marker in markers(log)
    assert len(log.aborted_txns) == (0 if commit else 1)
    compact(log, NOW + CONFIG.delete_retention_ms)
    assert marker not in markers(log)
    assert len(log.aborted_txns) == 0
    assert later.put(b"y") == log.end_offset - 1


def test_the_marker_that_fences_a_producer_stays() -> None:
    log = open_log(SimDisk(), CONFIG)
    writer = Writer(log, 7)
    writer.put(b"a")
    marker = writer.end(commit=False)
    for day in range(4):
        compact(log, NOW + day * CONFIG.delete_retention_ms)
    assert marker in markers(log)
    disk = log._shelf.disk
    for name in disk.list_dir(FOLDER):
        if name.endswith(".snapshot") or name == "checkpoint":
            disk.remove(FOLDER / name)
    log = open_log(disk, CONFIG)
    writer.log, writer.epoch = log, 0
    with pytest.raises(KafkaError) as refused:
        writer.put(b"a")
    assert refused.value.code is ErrorCode.invalid_producer_epoch


def stories(log: PartitionLog) -> None:
    """Three producers, their transactions crossing, two of three aborted."""
    writers = [Writer(log, producer) for producer in (7, 8, 9)]
    for number in range(12):
        for writer in writers:
            writer.put(b"%d" % (number % 3))
            if (number + writer.producer) % 2:
                writer.end(commit=(number + writer.producer) % 3 == 0)
    for writer in writers:
        writer.end(commit=False)


def committed_of(log: PartitionLog) -> dict[bytes | None, int]:
    """What a read_committed reader finds: the newest record of each key."""
    newest: dict[bytes | None, int] = {}
    offset = log.start_offset
    while offset < log.end_offset:
        data = log.read(offset, 1000, log.end_offset, at_least_one=True).load()
        if not data:
            break
        after = [header.next_offset for _, header in walk(data)][-1]
        aborted = sorted(log.aborted(offset, after), key=lambda entry: entry[1])
        skipped: set[int] = set()
        for at, header in walk(data):
            while aborted and aborted[0][1] <= header.last_offset:
                skipped.add(aborted.pop(0)[0])
            if header.is_control:
                if any(record.key == b"\0\0\0\0" for record in decode(data, at)):
                    skipped.discard(header.producer_id)
            elif not header.is_transactional or header.producer_id not in skipped:
                newest.update({record.key: record.offset for record in decode(data, at)})
        offset = after
    return {key: at for key, at in newest.items() if key is not None and not key.startswith(b"run")}


def test_a_reader_sees_the_same_before_and_after_and_after_every_crash() -> None:
    disk = SimDisk()
    log = open_log(disk, CONFIG)
    stories(log)
    expected = committed_of(log)
    log.sync(checkpoint=True)
    for seed in range(80):
        choice = random.Random(seed)
        crash_after = choice.randint(0, 50) if seed % 8 else -1
        for done, _ in enumerate(steps(log, NOW + seed * CONFIG.delete_retention_ms // 10)):
            if done == crash_after:
                break
        disk.crash(choice)
        log = open_log(disk, CONFIG)
        log.first_unstable_offset(log.end_offset)
        assert log.offline is None
        assert committed_of(log) == expected, f"seed {seed}"
        rebuilt = recovery.load(new_shelf(disk), FOLDER, CONFIG, NOW)
        assert rebuilt.states.snapshots.states.open == {}
    assert len(log.aborted_txns) <= 3, "of those that are left, only the last of each producer has a marker"


def steps(log: PartitionLog, now_ms: int) -> Iterator[bool]:
    put(log, b"run %d" % log.end_offset)
    log.sync()
    log.roll(NOW)
    log.settle(log.end_offset)
    return Compactor(new_shelf(log._shelf.disk), step_bytes=300).steps(log, now_ms)
