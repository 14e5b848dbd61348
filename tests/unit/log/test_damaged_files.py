"""Each file of a partition's folder, damaged in each way: it takes at most its partition, and one line names it."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headrace.log import checkpoint as checkpoints
from headrace.log import identity, leader_epochs, sealed
from headrace.log.folder import CLEAN_STOP
from headrace.log.logs import Logs
from headrace.log.partition_log import PartitionLog
from headrace.model.image import ClusterImage, PartitionImage, TopicImage
from headrace.model.topic_config import TopicConfig, topic_config
from headrace.replicas.host import ReplicaHost
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.record import Record
from headrace.wire.records import encode_batch
from headrace.world.disk import File
from sim.disk import SimDisk
from sim.loop import SimClock, run
from tests.unit.log.batches import offsets

DATA = Path("/data")
FOLDER = DATA / "orders-0"
ID = uuid.UUID(int=5)
SETTINGS = {"segment.bytes": "500", "index.interval.bytes": "100", "headrace.dedup.window.ms": "3600000"}
RECORDS = 12
SEALED = f"{3:020d}"  # three records a segment

FILES = [
    checkpoints.NAME, leader_epochs.NAME, identity.NAME, sealed.NAME, f"{SEALED}.snapshot", f"{RECORDS:020d}.snapshot",
    f"{SEALED}.txnindex", f"{0:020d}.ids", f"{SEALED}.index", f"{SEALED}.timeindex",
]  # fmt: skip
DAMAGES = ["empty", "cut", "garbage", "future", "directory", "unreadable"]
REFUSED_FUTURE = [checkpoints.NAME, leader_epochs.NAME, identity.NAME]


class PickyDisk(SimDisk):
    """Some files cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.unreadable: set[Path] = set()

    def open(self, path: Path, *, create: bool = False) -> File:
        self._refuse(path)
        return super().open(path, create=create)

    def read_bytes(self, path: Path) -> bytes:
        self._refuse(path)
        return super().read_bytes(path)

    def _refuse(self, path: Path) -> None:
        if path in self.unreadable:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def config() -> TopicConfig:
    return topic_config(SETTINGS, {})


def fill(log: PartitionLog, clock: SimClock) -> None:
    """A log with all kinds of files: an idempotent producer's records, an aborted transaction, two leader epochs."""
    producer, value = 7, b"x" * 60
    for sequence in range(4):
        record = Record(0, clock.now_ms(), b"k", value)
        sent = encode_batch([record], producer_id=1, producer_epoch=0, base_sequence=sequence)
        log.append(memoryview(sent), sequence // 2, now_ms=clock.now_ms())
    sent = encode_batch([Record(0, clock.now_ms(), b"t", value)], producer_id=producer, producer_epoch=0,
                        base_sequence=0, attributes=0x10)  # fmt: skip
    log.append(memoryview(sent), 2, now_ms=clock.now_ms(), transactional=True)
    log.append_marker(producer, 0, 0, False, 2, strict=False, now_ms=clock.now_ms())
    while log.end_offset < RECORDS:
        log.append(memoryview(encode_batch([Record(0, clock.now_ms(), b"p", value)])), 3, now_ms=clock.now_ms())


def damage(disk: PickyDisk, path: Path, how: str) -> None:
    content = disk.read_bytes(path)
    new = {"empty": b"", "cut": content[: len(content) // 2], "garbage": b"\xff\xfe\x00garbage" * 30}.get(how)
    if how == "future":
        new = content.replace(b" 1\n", b" 2\n", 1) if path.name in (leader_epochs.NAME, identity.NAME) else None
        step = 512 if path.name == checkpoints.NAME else len(content)
        new = new or b"".join(
            content[at : at + 4] + b"\0\x63" + content[at + 6 : at + step] for at in range(0, len(content), step)
        )
    if how == "unreadable":
        disk.unreadable.add(path)
    elif how == "directory":
        disk.remove(path)
        disk.make_dirs(path)
    else:
        assert new is not None
        disk.write_atomic(path, new)


def simulated(story: Callable[[PickyDisk, SimClock], Awaitable[None]]) -> None:
    async def main() -> None:
        disk = PickyDisk()
        disk.make_dirs(DATA)
        await story(disk, SimClock())

    run(main(), seed=0)


async def stopped_broker(disk: PickyDisk, clock: SimClock, *, clean: bool) -> None:
    logs = Logs(disk, clock, DATA)
    for partition in (0, 1):
        fill(logs.create("orders", partition, ID, config()), clock)
    await logs.flush()
    if clean:
        await logs.close()
    else:
        for _, log in logs:
            log.sync(checkpoint=True)
        logs.abandon()


async def started(disk: PickyDisk, clock: SimClock) -> tuple[Logs, ReplicaHost]:
    disk.remove(DATA / CLEAN_STOP)
    logs = Logs(disk, clock, DATA)
    await logs.open(lambda name: config())
    host = ReplicaHost(1, logs, clock, {})
    topic = TopicImage(
        "orders", ID, tuple(PartitionImage(index, (1,), (1,), 1, 5, 0) for index in (0, 1)), settings=SETTINGS
    )
    host.follow(ClusterImage("", -1), ClusterImage("c", 1).with_topics([topic]))
    return logs, host


def segments(disk: SimDisk) -> dict[str, bytes]:
    return {name: disk.read_bytes(FOLDER / name) for name in disk.list_dir(FOLDER) if name.endswith(".log")}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_takes_at_most_its_partition(
    name: str, how: str, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(disk: PickyDisk, clock: SimClock) -> None:
        await stopped_broker(disk, clock, clean=clean)
        original, stored = disk.read_bytes(FOLDER / name), segments(disk)
        damage(disk, FOLDER / name, how)
        logs, host = await started(disk, clock)
        other = host.find("orders", 1)
        assert other.leads
        assert offsets(other.log) == list(range(RECORDS))
        served = logs.get("orders", 0) is not None
        assert served or how in ("directory", "unreadable") or (how == "future" and name in REFUSED_FUTURE)
        if served:
            log = host.find("orders", 0).log
            assert offsets(log) == list(range(RECORDS))
            assert log.epochs.entries == other.log.epochs.entries
            assert log.producers.encode() == other.log.producers.encode()
            assert log.aborted(0, RECORDS) == other.log.aborted(0, RECORDS)
        else:
            with pytest.raises(KafkaError, match=name) as refused:
                host.find("orders", 0)
            assert refused.value.code is ErrorCode.kafka_storage_error
            told = [record for record in caplog.records if name in record.getMessage()]
            assert len([record for record in told if record.levelno == logging.ERROR]) == 1
            assert not any(record.exc_info for record in caplog.records)
        assert segments(disk) == stored, "no record is gone"
        await logs.close()
        assert disk.exists(DATA / CLEAN_STOP) == served
        disk.unreadable.clear()
        if how == "directory" and not served:
            disk.remove(FOLDER / name)
        if not served:
            disk.write_atomic(FOLDER / name, original)
            logs, host = await started(disk, clock)
            assert offsets(host.find("orders", 0).log) == list(range(RECORDS))

    simulated(story)


@pytest.mark.parametrize("name", REFUSED_FUTURE)
def test_a_file_of_a_later_version_is_named_with_both_versions_and_nothing_is_changed(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(disk: PickyDisk, clock: SimClock) -> None:
        await stopped_broker(disk, clock, clean=True)
        damage(disk, FOLDER / name, "future")
        before = {file: disk.read_bytes(FOLDER / file) for file in disk.list_dir(FOLDER)}
        await started(disk, clock)
        [line] = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        assert str(FOLDER / name) in line
        assert "this headrace knows format 1" in line
        assert "run the version that wrote it" in line
        assert {file: disk.read_bytes(FOLDER / file) for file in disk.list_dir(FOLDER)} == before

    simulated(story)


@pytest.mark.parametrize("name", [leader_epochs.NAME, checkpoints.NAME, sealed.NAME, f"{SEALED}.txnindex"])
def test_what_is_made_again_from_the_log_is_named(name: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story(disk: PickyDisk, clock: SimClock) -> None:
        await stopped_broker(disk, clock, clean=True)
        damage(disk, FOLDER / name, "garbage")
        await started(disk, clock)
        [line] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert str(FOLDER) in line
        assert name in line

    simulated(story)


def test_a_partition_is_served_without_a_restart_once_its_file_is_mended() -> None:
    async def story(disk: PickyDisk, clock: SimClock) -> None:
        await stopped_broker(disk, clock, clean=True)
        damage(disk, FOLDER / checkpoints.NAME, "unreadable")
        _, host = await started(disk, clock)
        running = asyncio.ensure_future(host.run())
        with pytest.raises(KafkaError, match=checkpoints.NAME):
            host.find("orders", 0)
        disk.unreadable.clear()
        await clock.sleep(7)
        assert offsets(host.find("orders", 0).log) == list(range(RECORDS))
        running.cancel()

    simulated(story)


def test_a_folder_that_cannot_be_opened_is_never_set_aside_for_removal() -> None:
    """Its id is unreadable, so it might be taken for another topic's."""

    async def story(disk: PickyDisk, clock: SimClock) -> None:
        await stopped_broker(disk, clock, clean=True)
        damage(disk, FOLDER / identity.NAME, "garbage")
        damage(disk, FOLDER / checkpoints.NAME, "unreadable")
        stored = segments(disk)
        await started(disk, clock)
        await clock.sleep(10)
        assert segments(disk) == stored

    simulated(story)


def test_an_empty_list_of_aborted_transactions_is_made_again() -> None:
    """Otherwise read_committed consumers would be given their records."""

    async def story(disk: PickyDisk, clock: SimClock) -> None:
        await stopped_broker(disk, clock, clean=True)
        damage(disk, FOLDER / f"{SEALED}.txnindex", "empty")
        _, host = await started(disk, clock)
        assert host.find("orders", 0).log.aborted(0, RECORDS) == [(7, 4)]

    simulated(story)
