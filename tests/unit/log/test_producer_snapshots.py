"""How many producers a log remembers: the same limit for appends, followers, snapshots and recovery."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headrace.log import recovery
from headrace.log.partition_log import PartitionLog
from headrace.log.producer_state import ProducerLimits
from headrace.model.topic_config import TopicConfig
from sim.disk import SimDisk
from tests.unit.log.batches import FOLDER, NOW, from_producer, new_shelf, open_log

MOST = 100
SMALL = TopicConfig(segment_bytes=2_000)


def limited(disk: SimDisk, config: TopicConfig = SMALL) -> PartitionLog:
    if not disk.exists(FOLDER):
        open_log(disk, config).close()
    shelf = replace(new_shelf(disk), producers=ProducerLimits(most=MOST))
    loaded = recovery.load(shelf, FOLDER, config, NOW)
    return PartitionLog(shelf, loaded, config, set(), NOW)


def written(log: PartitionLog, count: int = 3 * MOST) -> None:
    for producer in range(count):
        log.append(from_producer(0, producer=producer), 0, now_ms=NOW + producer)


def snapshot_sizes(disk: SimDisk) -> list[int]:
    names = [name for name in disk.list_dir(FOLDER) if name.endswith(".snapshot")]
    return [len(disk.read_bytes(FOLDER / name)) for name in names]


def test_a_log_and_its_snapshots_hold_no_more_producers_than_allowed() -> None:
    disk = SimDisk()
    log = limited(disk)
    written(log)
    log.sync(checkpoint=True)
    assert len(log.producers) <= MOST
    assert 3 * MOST - 1 in log.producers.producers
    assert len(snapshot_sizes(disk)) > 1
    assert max(snapshot_sizes(disk)) <= 24 + MOST * (36 + 32)


@pytest.mark.parametrize("snapshots", ["there", "lost"])
def test_what_a_start_reads_from_the_log_is_limited_too(snapshots: str) -> None:
    disk = SimDisk()
    written(limited(disk))
    if snapshots == "lost":
        for name in disk.list_dir(FOLDER):
            if name.endswith(".snapshot"):
                disk.remove(FOLDER / name)
    again = limited(disk)
    assert len(again.producers) <= MOST
    assert again.append(from_producer(0, producer=3 * MOST - 1), 0, now_ms=NOW).duplicate, "it is remembered"
    assert not again.append(from_producer(7, producer=0), 0, now_ms=NOW).duplicate, "it was forgotten and goes on"


def test_a_follower_that_forgot_others_than_its_leader_takes_what_that_one_accepted() -> None:
    leader, follower = open_log(SimDisk()), limited(SimDisk(), TopicConfig())
    written(leader)
    leader.append(from_producer(1, producer=0), 0, now_ms=NOW)
    data = leader.read(0, 1 << 20, leader.end_offset, at_least_one=True).load()
    follower.append_as_follower(memoryview(data), NOW)
    assert follower.end_offset == leader.end_offset
    assert len(leader.producers) == 3 * MOST
    assert len(follower.producers) <= MOST
    assert leader.append(from_producer(2, producer=0), 0, now_ms=NOW).base_offset == leader.end_offset - 1
    assert follower.append(from_producer(2, producer=0), 0, now_ms=NOW).base_offset == follower.end_offset - 1
