"""The flush of every second: what it makes safe, whom it leaves alone, and who gets a checkpoint."""

from __future__ import annotations

import random
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from headrace.log import checkpoint as checkpoints
from headrace.log.flushing import CHECKPOINT_S, CHECKPOINTS_AT_ONCE, MOST_SCAN_BYTES, to_checkpoint
from headrace.log.logs import Logs
from headrace.log.partition_log import PartitionLog
from headrace.model.topic_config import TopicConfig
from headrace.wire.errors import KafkaError
from sim.disk import SimDisk
from sim.loop import SimClock, run
from tests.unit.log.batches import batch, offsets

FOLDER = Path("/data")
ID = uuid.UUID(int=5)
MANY = 40  # more than are synced together, in either half


def simulated(story: Callable[[SimDisk, SimClock, Logs], Awaitable[None]]) -> None:
    async def main() -> None:
        disk, clock = SimDisk(), SimClock()
        disk.make_dirs(FOLDER)
        disk.sync_dir(FOLDER.parent)
        await story(disk, clock, Logs(disk, clock, FOLDER))

    run(main(), seed=0)


def made(logs: Logs, clock: SimClock, count: int = MANY, config: TopicConfig = TopicConfig()) -> list[PartitionLog]:
    found = [logs.create("orders", partition, ID, config) for partition in range(count)]
    for log in found:
        log.append(batch(at=clock.now_ms()), 0, now_ms=clock.now_ms())
    return found


@pytest.mark.parametrize("fsync", [False, True])
def test_what_was_flushed_survives_a_power_cut(fsync: bool) -> None:
    async def story(disk: SimDisk, clock: SimClock, logs: Logs) -> None:
        config = TopicConfig(fsync=fsync)
        written = made(logs, clock, config=config)
        await logs.flush()
        assert all(log.synced_offset == 1 for log in written)
        logs.abandon()
        disk.crash(random.Random(1))
        again = Logs(disk, clock, FOLDER)
        await again.open(lambda name: config)
        assert [offsets(log) for _, log in again] == [[0]] * MANY

    simulated(story)


def test_one_disk_error_takes_one_log_offline_and_the_others_are_flushed(caplog: pytest.LogCaptureFixture) -> None:
    async def story(disk: SimDisk, clock: SimClock, logs: Logs) -> None:
        written = made(logs, clock)
        await logs.flush()
        for log in written:
            log.append(batch(at=clock.now_ms()), 0, now_ms=clock.now_ms())
        disk.fail_syncs = 1
        await logs.flush()
        broken = [log for log in written if log.offline is not None]
        assert len(broken) == 1
        assert all(log.synced_offset == 2 for log in written if log not in broken)
        assert f"cannot flush {broken[0].directory}" in caplog.text

    simulated(story)


@pytest.mark.parametrize("fsync", [False, True])
def test_a_full_disk_does_not_take_a_log_offline_that_has_no_file_yet(fsync: bool) -> None:
    async def story(disk: SimDisk, clock: SimClock, logs: Logs) -> None:
        log = logs.create("orders", 0, ID, TopicConfig(fsync=fsync))
        disk.room_bytes = 0
        with pytest.raises(KafkaError, match="no room on disk"):  # neither for the file nor for the records
            log.append(batch(at=clock.now_ms()), 0, now_ms=clock.now_ms())
        for _ in range(2):
            await logs.flush()
        assert log.offline is None
        disk.room_bytes = None
        log.append(batch(at=clock.now_ms()), 0, now_ms=clock.now_ms())
        await logs.flush()
        assert (log.offline, log.synced_offset) == (None, 1)

    simulated(story)


def test_who_waits_for_a_sync_that_a_full_disk_refuses_has_it_once_there_is_room() -> None:
    """A leader would give up otherwise, although its log is whole and nobody else may lead."""

    async def story(disk: SimDisk, clock: SimClock, logs: Logs) -> None:
        (log,) = made(logs, clock, count=1, config=TopicConfig(fsync=True))
        disk.room_bytes = 0  # for the first checkpoint, or for the state of producers later
        waiting = logs.request_sync(log)
        await clock.sleep(30)
        assert not waiting.done()
        disk.room_bytes = None
        await waiting
        assert (log.offline, log.synced_offset) == (None, 1)

    simulated(story)


def test_a_log_that_has_fallen_silent_gets_its_checkpoint_too() -> None:
    async def story(disk: SimDisk, clock: SimClock, logs: Logs) -> None:
        made(logs, clock, count=1)
        for recovery_point in (0, 1):
            await logs.flush()
            found = checkpoints.load(disk, FOLDER / "orders-0")
            assert found is not None
            assert found.recovery_point == recovery_point
            await clock.sleep(CHECKPOINT_S)

    simulated(story)


class Waiting:
    """A log, as the choice of checkpoints sees it."""

    def __init__(self, size: int) -> None:
        self.bytes_since_checkpoint = size


def choose(waiting: dict[Waiting, float], now_s: float) -> set[Waiting]:
    return cast(set[Waiting], to_checkpoint(cast(dict[PartitionLog, float], waiting), now_s))


def test_those_that_waited_longest_get_a_checkpoint_a_few_at_a_time() -> None:
    waiting = {Waiting(10): float(number) for number in range(3 * CHECKPOINTS_AT_ONCE)}
    assert choose(waiting, CHECKPOINT_S - 1) == set()
    assert choose(waiting, CHECKPOINT_S) == set(list(waiting)[:1])
    assert choose(waiting, 1000.0) == set(list(waiting)[:CHECKPOINTS_AT_ONCE])


def test_the_largest_get_a_checkpoint_at_once_when_there_is_too_much_to_scan() -> None:
    small, large, larger = (Waiting(MOST_SCAN_BYTES // part) for part in (4, 2, 1))
    assert choose({small: 0.0, large: 0.0}, 0.0) == set()
    assert choose({large: 0.0, larger: 0.0, small: 0.0}, 0.0) == {larger}
    many = {Waiting(MOST_SCAN_BYTES // 100): 0.0 for _ in range(150)}
    assert 50 <= len(choose(many, 0.0)) <= 51
