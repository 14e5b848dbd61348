"""What is left on a disk that is nearly full is for more important things than records."""

from __future__ import annotations

import logging
import uuid
from pathlib import Path

import pytest

from headrace.log.folder import CLEAN_STOP
from headrace.log.headroom import Headroom
from headrace.log.logs import Logs, Upkeep
from headrace.log.partition_log import PartitionLog
from headrace.model.image import GROUP_OFFSETS_TOPIC
from headrace.model.topic_config import TopicConfig
from headrace.wire.errors import ErrorCode, KafkaError
from sim.disk import SimDisk
from sim.loop import SimClock, run
from tests.unit.log.batches import NOW, batch, from_producer, offsets

FOLDER = Path("/data")
ID = uuid.UUID(int=5)
RESERVE = 10_000


def new_disk(room_bytes: int | None) -> SimDisk:
    disk = SimDisk()
    disk.make_dirs(FOLDER)
    disk.room_bytes = room_bytes
    return disk


def new_logs(disk: SimDisk) -> Logs:
    return Logs(disk, SimClock(), FOLDER, Upkeep(reserve_bytes=RESERVE))


def filled(log: PartitionLog) -> int:
    """Append until that is refused; how many records were taken."""
    for _ in range(1000):
        try:
            log.append(batch(value=b"x" * 500), 0, now_ms=NOW)
        except KafkaError as error:
            if error.code is not ErrorCode.kafka_storage_error:
                raise
            return log.end_offset
    raise AssertionError("the reserve is not kept")


def test_a_broker_that_filled_its_disk_stops_cleanly_and_starts_again() -> None:
    async def story() -> None:
        disk = new_disk(RESERVE + 40_000)
        logs = new_logs(disk)
        log = logs.create("orders", 0, ID, TopicConfig(segment_bytes=8_000))
        count = filled(log)
        assert count > 20
        await logs.close(3)
        assert disk.exists(FOLDER / CLEAN_STOP), "there was no room to stop cleanly"
        again = new_logs(disk)
        await again.open(lambda name: TopicConfig())
        found = again.get("orders", 0)
        assert found is not None
        assert (found.offline, offsets(found)) == (None, list(range(count)))
        assert filled(found) == count

    run(story(), seed=0)


def test_it_takes_records_again_by_itself_when_there_is_room_and_says_both_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        disk = new_disk(RESERVE + 2_000)
        log = new_logs(disk).create("orders", 0, ID, TopicConfig())
        with caplog.at_level(logging.INFO):
            filled(log)
            filled(log)
            disk.room_bytes = RESERVE + 1_000  # less than an eighth more
            filled(log)
            disk.room_bytes = RESERVE + 5_000
            log.append(batch(), 0, now_ms=NOW)
        said = [record.getMessage() for record in caplog.records]
        assert ["records are refused" in line for line in said] == [True, False]
        assert "headrace.disk.reserve.bytes" in said[0]
        assert "there is room in /data again" in said[1]

    run(story(), seed=0)


def test_groups_transactions_and_their_ends_may_use_the_reserve() -> None:
    async def story() -> None:
        disk = new_disk(RESERVE + 2_000)
        logs = new_logs(disk)
        log = logs.create("orders", 0, ID, TopicConfig())
        groups = logs.create(GROUP_OFFSETS_TOPIC, 0, ID, TopicConfig())
        filled(log)
        assert disk.free_bytes(FOLDER) < RESERVE + 1_000
        for _ in range(20):
            groups.append(batch(), 0, now_ms=NOW, internal=True)
        log.append_marker(7, 0, 0, True, 0, strict=False, now_ms=NOW)
        assert disk.free_bytes(FOLDER) < RESERVE

    run(story(), seed=0)


def test_a_follower_keeps_the_reserve_too_but_copies_groups() -> None:
    async def story() -> None:
        leader = new_logs(new_disk(None)).create("orders", 0, ID, TopicConfig())
        leader.append(batch(), 0, now_ms=NOW)
        copied = memoryview(bytearray(leader.read(0, 1000, 1, at_least_one=True).load()))
        logs = new_logs(new_disk(RESERVE))
        follower = logs.create("orders", 0, ID, TopicConfig())
        with pytest.raises(KafkaError) as refused:
            follower.append_as_follower(copied)
        assert (refused.value.code, follower.end_offset) == (ErrorCode.kafka_storage_error, 0)
        groups = logs.create(GROUP_OFFSETS_TOPIC, 0, ID, TopicConfig())
        groups.append_as_follower(copied)
        assert groups.end_offset == 1

    run(story(), seed=0)


def test_what_was_stored_before_is_acknowledged_again_on_a_full_disk() -> None:
    async def story() -> None:
        disk = new_disk(RESERVE + 2_000)
        log = new_logs(disk).create("orders", 0, ID, TopicConfig())
        log.append(from_producer(0), 0, now_ms=NOW)
        filled(log)
        assert log.append(from_producer(0), 0, now_ms=NOW).duplicate

    run(story(), seed=0)


def test_the_reserve_is_at_most_a_hundredth_of_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = new_disk(20_000)
    monkeypatch.setattr(disk, "total_bytes", lambda path: 1_000_000)
    headroom = Headroom(disk, FOLDER, 64 << 20)
    headroom.take(10_000)
    disk.room_bytes = 10_000
    with pytest.raises(KafkaError, match="10000 are kept"):
        headroom.take(1)


def test_without_a_reserve_the_disk_itself_is_the_limit() -> None:
    headroom = Headroom(new_disk(0), FOLDER, 0)
    headroom.take(1 << 30)
    assert not headroom.is_short


def test_what_others_write_to_the_disk_is_seen_at_the_next_look() -> None:
    disk = new_disk(RESERVE + 5_000)
    headroom = Headroom(disk, FOLDER, RESERVE)
    headroom.take(100)
    disk.room_bytes = RESERVE + 50
    headroom.look()
    with pytest.raises(KafkaError):
        headroom.take(100)
