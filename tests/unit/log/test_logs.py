"""All logs of a broker: opened, made, deleted, flushed, trimmed and closed together."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headrace.log.folder import CLEAN_STOP
from headrace.log.logs import Logs
from headrace.model.topic_config import TopicConfig
from headrace.wire.errors import KafkaError
from sim.disk import SimDisk, SimFile
from sim.loop import SimClock, run
from tests.unit.log.batches import batch, offsets

FOLDER = Path("/data")
ID = uuid.UUID(int=5)
DAY_MS = 86_400_000


def new_disk() -> SimDisk:
    disk = SimDisk()
    disk.make_dirs(FOLDER)
    return disk


def simulated(story: Callable[[SimDisk, SimClock], Awaitable[None]]) -> None:
    async def main() -> None:
        await story(new_disk(), SimClock())

    run(main(), seed=0)


def put(logs: Logs, clock: SimClock, topic: str = "orders", partition: int = 0) -> None:
    log = logs.get(topic, partition)
    assert log is not None
    log.append(batch(at=clock.now_ms()), 0, now_ms=clock.now_ms())


def test_a_clean_stop_brings_everything_back_without_a_scan() -> None:
    async def story(disk: SimDisk, clock: SimClock) -> None:
        logs = Logs(disk, clock, FOLDER)
        for partition in range(40):
            logs.create("orders", partition, ID, TopicConfig())
            put(logs, clock, partition=partition)
        await logs.close()
        assert disk.exists(FOLDER / CLEAN_STOP)
        disk.open(FOLDER / "metadata.db", create=True).close()
        again, seen = Logs(disk, clock, FOLDER), []
        await again.open(lambda name: TopicConfig(), lambda done, total: seen.append((done, total)))
        assert len(again) == 40
        assert seen[-1] == (40, 40)
        for (topic, _), log in again:
            assert (topic, log.topic_id, log.scanned_bytes, offsets(log)) == ("orders", ID, 0, [0])

    simulated(story)


def test_a_new_pace_of_compaction_holds_from_the_next_look_on() -> None:
    async def story(disk: SimDisk, clock: SimClock) -> None:
        logs = Logs(disk, clock, FOLDER)
        looks: list[float] = []

        async def look() -> None:
            looks.append(clock.monotonic())

        logs.compact = look  # type: ignore[method-assign]
        logs.cleaner_backoff_ms = 4000
        begun = clock.monotonic()
        running = asyncio.ensure_future(logs.run())
        await clock.sleep(4.5)
        logs.cleaner_backoff_ms = 1000
        await clock.sleep(6)
        running.cancel()
        assert [round(at - begun) for at in looks] == [4, 8, 9, 10]

    simulated(story)


def test_a_killed_process_loses_nothing() -> None:
    async def story(disk: SimDisk, clock: SimClock) -> None:
        logs = Logs(disk, clock, FOLDER)
        logs.create("orders", 0, ID, TopicConfig(fsync=True))
        put(logs, clock)
        logs.abandon()
        assert not disk.exists(FOLDER / CLEAN_STOP)
        again = Logs(disk, clock, FOLDER)
        await again.open(lambda name: TopicConfig(fsync=True))
        log = again.get("orders", 0)
        assert log is not None
        assert (log.end_offset, log.synced_offset) == (1, 1), "what readers of such a topic see is on disk"

    simulated(story)


def test_on_a_full_disk_a_topic_that_syncs_is_opened_as_far_as_it_was_synced() -> None:
    async def story(disk: SimDisk, clock: SimClock) -> None:
        logs = Logs(disk, clock, FOLDER)
        log = logs.create("orders", 0, ID, TopicConfig(fsync=True))
        put(logs, clock)
        log.sync(checkpoint=True)
        log.append(batch(), 1, now_ms=clock.now_ms())  # a leader epoch that is not stored yet
        logs.abandon()
        disk.room_bytes = 0
        again = Logs(disk, clock, FOLDER)
        await again.open(lambda name: TopicConfig(fsync=True))
        opened = again.get("orders", 0)
        assert opened is not None
        assert (opened.offline, opened.end_offset, opened.synced_offset) == (None, 2, 1)
        disk.room_bytes = None
        await again.flush()
        assert opened.synced_offset == 2

    simulated(story)


def test_folders_that_belong_to_no_topic_are_left_as_they_are() -> None:
    async def story(disk: SimDisk, clock: SimClock) -> None:
        logs = Logs(disk, clock, FOLDER)
        logs.create("stray", 0, ID, TopicConfig())
        put(logs, clock, "stray")
        await logs.close()
        again = Logs(disk, clock, FOLDER)
        await again.open(lambda name: None)
        assert again.get("stray", 0) is None
        assert disk.exists(FOLDER / "stray-0")

    simulated(story)


def test_a_partition_without_records_takes_no_place_on_disk() -> None:
    async def story(disk: SimDisk, clock: SimClock) -> None:
        logs = Logs(disk, clock, FOLDER)
        for partition in range(3):
            logs.create("orders", partition, ID, TopicConfig())
        logs.delete("orders", 2)
        put(logs, clock, partition=1)
        assert disk.list_dir(FOLDER) == ["orders-1"]
        await logs.close()
        again = Logs(disk, clock, FOLDER)
        await again.open(lambda name: TopicConfig())
        assert len(again) == 1

    simulated(story)


def test_a_deleted_topic_s_name_is_free_at_once_and_its_files_go() -> None:
    async def story(disk: SimDisk, clock: SimClock) -> None:
        logs = Logs(disk, clock, FOLDER)
        old = logs.create("orders", 0, ID, TopicConfig())
        put(logs, clock)
        logs.delete("orders", 0)
        with pytest.raises(KafkaError):
            old.append(batch(at=clock.now_ms()), 0, now_ms=clock.now_ms())
        fresh = logs.create("orders", 0, uuid.UUID(int=6), TopicConfig())
        assert fresh.end_offset == 0
        put(logs, clock)
        await logs.close()
        assert sorted(disk.list_dir(FOLDER)) == [CLEAN_STOP, "orders-0"]

    simulated(story)


def test_a_sync_that_a_deletion_overtakes_writes_nothing_into_the_next_topic_of_that_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    between: list[Callable[[], None]] = []
    real_sync = SimFile.sync

    def sync(file: SimFile) -> None:
        real_sync(file)
        if between:
            between.pop()()

    async def story(disk: SimDisk, clock: SimClock) -> None:
        logs, found = Logs(disk, clock, FOLDER), dict[str, bytes]()

        def contents() -> dict[str, bytes]:
            return {name: disk.read_bytes(FOLDER / "orders-0" / name) for name in disk.list_dir(FOLDER / "orders-0")}

        def replace_the_topic() -> None:
            logs.delete("orders", 0)
            fresh = logs.create("orders", 0, uuid.UUID(int=6), TopicConfig())
            put(logs, clock)
            fresh.sync(checkpoint=True)
            found.update(contents())

        old = logs.create("orders", 0, ID, TopicConfig())
        put(logs, clock)
        old.sync(checkpoint=True)
        for _ in range(3):
            put(logs, clock)
        old.epochs.assign(9, old.end_offset)
        between.append(replace_the_topic)
        await clock.sleep(60)
        await logs.flush()
        assert found, "the topic was not replaced while its log was being synced"
        assert contents() == found
        await logs.close()

    monkeypatch.setattr(SimFile, "sync", sync)
    simulated(story)
    assert "cannot flush" not in caplog.text


def test_a_deletion_that_a_crash_interrupts_is_finished_at_the_next_start() -> None:
    async def story(disk: SimDisk, clock: SimClock) -> None:
        disk.make_dirs(FOLDER / "orders-0.0.deleted")
        logs = Logs(disk, clock, FOLDER)
        await logs.open(lambda name: TopicConfig())
        assert len(logs) == 0
        await logs.close()
        assert disk.list_dir(FOLDER) == [CLEAN_STOP]

    simulated(story)


def test_a_folder_of_the_same_topic_is_taken_up_and_another_s_is_set_aside() -> None:
    async def story(disk: SimDisk, clock: SimClock) -> None:
        logs = Logs(disk, clock, FOLDER)
        logs.create("orders", 0, ID, TopicConfig())
        put(logs, clock)
        await logs.close()
        assert Logs(disk, clock, FOLDER).create("orders", 0, ID, TopicConfig()).end_offset == 1
        assert Logs(disk, clock, FOLDER).create("orders", 0, uuid.UUID(int=6), TopicConfig()).end_offset == 0

    simulated(story)


def test_the_background_flushes_within_a_second_and_drops_what_is_old() -> None:
    async def story(disk: SimDisk, clock: SimClock) -> None:
        logs = Logs(disk, clock, FOLDER)
        log = logs.create("orders", 0, ID, TopicConfig(retention_ms=DAY_MS))
        background = asyncio.ensure_future(logs.run())
        put(logs, clock)
        await clock.sleep(1.1)
        assert log.synced_offset == 1
        await clock.sleep(86_410)
        assert (log.start_offset, log.end_offset) == (1, 1)
        background.cancel()
        await asyncio.gather(background, return_exceptions=True)

    simulated(story)


def test_the_background_compacts_once_a_segment_is_sealed() -> None:
    async def story(disk: SimDisk, clock: SimClock) -> None:
        logs = Logs(disk, clock, FOLDER)
        log = logs.create("orders", 0, ID, TopicConfig(cleanup_policy=("compact",), segment_ms=60_000))
        background = asyncio.ensure_future(logs.run())
        for _ in range(5):
            put(logs, clock)
        await clock.sleep(80)
        assert offsets(log) == [4]
        background.cancel()
        await asyncio.gather(background, return_exceptions=True)

    simulated(story)


def test_syncs_are_shared_and_one_runs_at_a_time() -> None:
    class CountingDisk(SimDisk):
        syncs = 0

        async def off_loop(self, work, *args):  # type: ignore[no-untyped-def]
            self.syncs += 1
            await asyncio.sleep(1)
            return work(*args)

    async def main() -> None:
        disk, clock = CountingDisk(), SimClock()
        disk.make_dirs(FOLDER)
        logs = Logs(disk, clock, FOLDER)
        log = logs.create("orders", 0, ID, TopicConfig(fsync=True))
        put(logs, clock)
        first = [logs.request_sync(log) for _ in range(10)]
        await asyncio.sleep(0.5)
        put(logs, clock)
        later = [logs.request_sync(log) for _ in range(10)]
        await asyncio.gather(*first)
        assert disk.syncs <= 2
        await asyncio.gather(*later)
        assert log.synced_offset == 2
        assert disk.syncs == 2
        await logs.request_sync(log)
        assert disk.syncs == 2, "there is nothing to sync"

    run(main(), seed=0)


def test_a_failed_sync_reaches_everybody_who_waits() -> None:
    async def story(disk: SimDisk, clock: SimClock) -> None:
        logs = Logs(disk, clock, FOLDER)
        log = logs.create("orders", 0, ID, TopicConfig(fsync=True))
        put(logs, clock)
        disk.fail_syncs = 1
        results = await asyncio.gather(*(logs.request_sync(log) for _ in range(3)), return_exceptions=True)
        assert all(isinstance(result, OSError) for result in results)
        assert log.offline is not None
        await logs.close()
        assert not disk.exists(FOLDER / CLEAN_STOP), "that was no clean stop"

    simulated(story)
