"""A lack of descriptors or memory costs an attempt, never a log: nothing is torn, nothing acknowledged is gone."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.log import checkpoint as checkpoints
from headrace.log.compaction import Compactor
from headrace.log.files import FilePool
from headrace.log.flushing import CHECKPOINT_S
from headrace.log.indexes import IndexShelf
from headrace.log.logs import Logs
from headrace.log.partition_log import PartitionLog
from headrace.log.scrubbing import scrub
from headrace.log.segment import Shelf
from headrace.model.topic_config import TopicConfig
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.disk import Buffer, RealDisk, is_lack
from sim.disk import SimDisk, SimFile
from sim.loop import SimClock
from tests.unit.log.batches import FOLDER, NOW, batch, from_producer, offsets, open_log
from tests.unit.log.test_flushing import made, simulated

SMALL = TopicConfig(segment_bytes=200)
COMPACTED = TopicConfig(cleanup_policy=("compact",), segment_bytes=200, file_delete_delay_ms=0)
MOST_OPENS = 60  # no work here needs more


@contextmanager
def lacking(disk: SimDisk, opens_left: int = 0) -> Iterator[None]:
    """Only so many descriptors can be had. What is in the block may fail for that reason, and for no other."""
    disk.opens_left = opens_left
    try:
        yield
    except KafkaError as error:
        if error.code is not ErrorCode.kafka_storage_error or not is_lack(error.__cause__):
            raise
    except OSError as error:
        if not is_lack(error):
            raise
    finally:
        disk.opens_left = None


def filled(disk: SimDisk, config: TopicConfig = SMALL) -> PartitionLog:
    """Several segments, and few files open."""
    disk.make_dirs(FOLDER.parent)
    disk.sync_dir(FOLDER.parent.parent)
    log = open_log(disk, config)
    for sequence in range(0, 12, 2):
        log.append(from_producer(sequence, 2), sequence // 2, now_ms=NOW)
    log._shelf.files.close()
    return log


def compact(log: PartitionLog) -> None:
    shelf = Shelf(log._shelf.disk, FilePool(log._shelf.disk), IndexShelf())
    Compactor(shelf, step_bytes=300).compact(log, NOW)


WORK: dict[str, tuple[TopicConfig, Callable[[PartitionLog], object], list[int]]] = {
    "append": (SMALL, lambda log: log.append(from_producer(12, 2), 9, now_ms=NOW), list(range(14))),
    "roll": (SMALL, lambda log: log.roll(NOW), list(range(12))),
    "sync": (SMALL, lambda log: log.sync(), list(range(12))),
    "checkpoint": (SMALL, lambda log: log.sync(checkpoint=True), list(range(12))),
    "truncate": (SMALL, lambda log: log.truncate_to(3), [0, 1]),
    "restart": (SMALL, lambda log: log.restart_at(50), []),
    "delete records": (SMALL, lambda log: log.advance_start(7), list(range(7, 12))),
    "retain": (SMALL, lambda log: log.apply_retention(NOW + 10**12), []),
    "compact": (COMPACTED, compact, [11]),
}


def possible(work: str, found: list[int]) -> bool:
    """After an interruption nothing has changed; but compaction goes on in steps."""
    return found[-1:] == [11] if work == "compact" else found == list(range(12))


@pytest.mark.parametrize("work", WORK)
def test_whatever_is_interrupted_by_a_lack_of_descriptors_can_be_done_once_there_are_some(work: str) -> None:
    config, action, left = WORK[work]
    for opens_left in range(MOST_OPENS):
        disk = SimDisk()
        log = filled(disk, config)
        if work == "compact":
            log.roll(NOW)
        with lacking(disk, opens_left):
            action(log)
            break
        if work not in ("truncate", "restart"):
            assert log.offline is None
            assert possible(work, offsets(log))
        if work == "append":
            assert log.append(from_producer(12, 2), 9, now_ms=NOW).base_offset == 12
        else:
            action(log)
        assert log.offline is None
        assert offsets(log) == left
        log.append(batch(), 9, now_ms=NOW)
        expected = offsets(log)
        log.sync(checkpoint=True)
        disk.crash(random.Random(opens_left))
        again = open_log(disk, config)
        assert (again.offline, offsets(again)) == (None, expected)
        assert [s.newest_timestamp() for s in again.segments] == [s.newest_timestamp() for s in log.segments]
    else:
        pytest.fail("the work was never done")
    assert opens_left > 0, "it needs no descriptor, so nothing was shown"


@pytest.mark.parametrize("work", WORK)
def test_a_crash_after_an_interruption_loses_nothing_that_was_synced(work: str) -> None:
    config, action, left = WORK[work]
    for opens_left in range(MOST_OPENS):
        disk = SimDisk()
        log = filled(disk, config)
        if work == "compact":
            log.roll(NOW)
        log.sync(checkpoint=True)
        log._shelf.files.close()
        done = False
        with lacking(disk, opens_left):
            action(log)
            done = True
        disk.crash(random.Random(opens_left))
        again = open_log(disk, config)
        assert again.offline is None
        assert offsets(again) == left or possible(work, offsets(again))
        if done:
            return
    pytest.fail("the work was never done")


def test_what_a_lack_interrupted_in_the_middle_of_a_truncation_is_not_served_before_it_is_finished() -> None:
    for opens_left in range(MOST_OPENS):
        disk = SimDisk()
        log = filled(disk)
        with lacking(disk, opens_left):
            log.truncate_to(3)
        if log.offline is not None:
            with pytest.raises(KafkaError, match=r"offline: .*Too many open files"):
                log.append(batch(), 9, now_ms=NOW)
            log.truncate_to(8)
            assert (log.offline, offsets(log)) == (None, [0, 1]), "as far back as was begun"
            return
    pytest.fail("no truncation was interrupted in its middle")


def test_a_truncation_that_cannot_be_finished_at_a_start_makes_the_start_fail_and_the_next_one_does_it() -> None:
    for opens_left in range(MOST_OPENS):
        disk = SimDisk()
        log = filled(disk)
        with lacking(disk, opens_left):
            log.truncate_to(3)
        if log.offline is None:
            continue
        for opens in range(MOST_OPENS):
            disk.opens_left = opens
            try:
                assert open_log(disk, SMALL).offline is None
                break
            except OSError as error:
                if not is_lack(error):
                    raise
            finally:
                disk.opens_left = None
        assert offsets(open_log(disk, SMALL)) == [0, 1]
        return
    pytest.fail("no truncation was interrupted in its middle")


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))])
def test_a_write_without_memory_leaves_nothing_in_the_file(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    disk = SimDisk()
    log = filled(disk, TopicConfig())
    size = log.segments[-1].size

    def write_some(file: SimFile, buffers: list[Buffer]) -> None:
        file.pwrite(bytes(buffers[0])[:70], size)
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(SimFile, "append", write_some)
        for records in (batch(), from_producer(12)):
            with pytest.raises(KafkaError, match="nothing was written, try again"):
                log.append(records, 9, now_ms=NOW)
    assert disk.file_size(FOLDER / f"{0:020d}.log") == size
    log.append(from_producer(12), 9, now_ms=NOW)
    assert offsets(log) == offsets(open_log(disk)) == list(range(13))


@pytest.mark.parametrize("usual", [True, False])
def test_a_write_that_cannot_be_noted_for_lack_of_memory_makes_the_log_offline_until_it_is_opened_again(
    monkeypatch: pytest.MonkeyPatch, usual: bool
) -> None:
    def no_memory(*_: object) -> None:
        raise MemoryError

    disk = SimDisk()
    log = filled(disk, TopicConfig())
    kind = type(log.tail.producers)
    with monkeypatch.context() as patched:
        patched.setattr(kind, "remember", no_memory)
        with pytest.raises(KafkaError, match="memory ran out in the middle of an append"):
            log.append(from_producer(12), 5 if usual else 9, now_ms=NOW)
    with pytest.raises(KafkaError, match="memory ran out in the middle of an append"):
        log.append(batch(), 9, now_ms=NOW)
    again = open_log(disk)
    assert (again.offline, offsets(again)) == (None, list(range(13)))
    assert again.append(from_producer(12), 9, now_ms=NOW).duplicate, "and the producer's retry finds it"


def test_a_flush_without_descriptors_is_made_up_for_and_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async def story(disk: SimDisk, clock: SimClock, logs: Logs) -> None:
        written = made(logs, clock)
        caplog.clear()
        for _ in range(5):
            disk.opens_left = 0
            logs._shelf.files.close()
            await logs.flush()
            await clock.sleep(CHECKPOINT_S)
        assert all((log.offline, log.synced_offset) == (None, 0) for log in written)
        assert len(caplog.records) == 1
        assert "39 other logs now: Too many open files; trying again" in caplog.text
        disk.opens_left = None
        for _ in range(4):
            await logs.flush()
            await clock.sleep(CHECKPOINT_S)
        assert all(log.synced_offset == 1 for log in written)
        points = [checkpoints.load(disk, log.directory) for log in written]
        assert all(point is not None and point.recovery_point == 1 for point in points), "checkpoints go on"
        assert len(caplog.records) <= 2

    simulated(story)


def test_memory_that_is_lacking_for_a_flush_of_many_logs_costs_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object) -> None:
        raise MemoryError

    async def story(disk: SimDisk, clock: SimClock, logs: Logs) -> None:
        written = made(logs, clock)
        with monkeypatch.context() as patched:
            patched.setattr(SimDisk, "sync_files", no_memory)
            await logs.flush()
        assert all((log.offline, log.synced_offset) == (None, 0) for log in written)
        await logs.flush()
        assert all(log.synced_offset == 1 for log in written)

    simulated(story)


def test_who_waits_for_a_sync_has_it_once_there_are_descriptors() -> None:
    async def story(disk: SimDisk, clock: SimClock, logs: Logs) -> None:
        (log,) = made(logs, clock, count=1, config=TopicConfig(fsync=True))
        logs._shelf.files.close()
        disk.opens_left = 0
        waiting = logs.request_sync(log)
        await clock.sleep(30)
        assert not waiting.done()
        disk.opens_left = None
        await waiting
        assert log.synced_offset == 1

    simulated(story)


def test_a_clean_stop_does_not_wait_for_descriptors() -> None:
    async def story(disk: SimDisk, clock: SimClock, logs: Logs) -> None:
        (log,) = made(logs, clock, count=1, config=TopicConfig(fsync=True))
        logs._shelf.files.close()
        disk.opens_left = 0
        waiting = logs.request_sync(log)
        await clock.sleep(1)
        await logs.close()
        assert waiting.exception() is not None
        assert not log.closed_cleanly

    simulated(story)


def test_the_daily_check_takes_a_lack_of_descriptors_for_no_damage() -> None:
    disk = SimDisk()
    log = filled(disk)
    disk.opens_left = 0
    with pytest.raises(OSError, match="Too many open files"):
        scrub(log, 0)
    disk.opens_left = None
    assert scrub(log, 0).damaged_at is None


def test_a_sync_that_failed_for_lack_of_memory_is_a_failed_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may have dropped the pages, whatever the reason."""

    def no_memory(fd: int) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    disk = RealDisk()
    file = disk.open(tmp_path / "file", create=True)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", no_memory)
        patched.setattr(os, "fsync", no_memory)
        patched.setattr("headrace.world.disk.sync_all", lambda fds: [errno.ENOMEM for _ in fds])
        for sync in (file.sync, lambda: disk.sync_dir(tmp_path), lambda: disk.write_atomic(tmp_path / "other", b"")):
            with pytest.raises(OSError, match="Input/output error") as failed:
                sync()
            assert not is_lack(failed.value)
        (found,) = disk.sync_files([file])
        assert found is not None
        assert not is_lack(found)
    file.close()
    disk.close()


def test_work_for_the_disk_finds_all_threads_started() -> None:
    """A pool that cannot start another thread fails the call, and carries the work out all the same."""

    async def main() -> None:
        disk = RealDisk(threads=3)
        await disk.off_loop(lambda: None)
        before = threading.active_count()
        for _ in range(20):
            await disk.off_loop(lambda: None)
        assert threading.active_count() == before
        disk.close()

    asyncio.run(main())
