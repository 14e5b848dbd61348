"""What a broker that stands alone does at its start with a full disk, damaged files, and files of a later version."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sqlite3
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from headrace.cluster.embedded import RESERVE_SUFFIX
from headrace.cluster.topic_changes import NewTopic
from headrace.log import checkpoint, identity, leader_epochs
from headrace.log.folder import META
from headrace.model.broker_config import BrokerConfig
from headrace.model.failure import Failure
from headrace.replicas.partition import Partition
from headrace.server.broker import METADATA, Broker
from headrace.testing.local_broker import LocalBroker
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.world import real_world
from tests.unit.log.batches import batch

SEGMENT = {"segment.bytes": str(3 * len(batch()))}


async def started(data: Path) -> Broker:
    broker = Broker(real_world(), BrokerConfig(settings={"auto.create.topics.enable": "false"}), data, ("127.0.0.1", 0))
    try:
        await broker.start()
    except BaseException:
        broker._folder.close()
        raise
    return broker


def filled(data: Path) -> None:
    """A data folder with two partitions of eleven records, after a clean stop."""

    async def story() -> None:
        broker = await started(data)
        await broker._controller.create_topic(NewTopic("orders", 2, settings=SEGMENT))
        while len(list(broker._host.partitions())) < 2:
            await asyncio.sleep(0.01)
        for partition in broker._host.partitions():
            for _ in range(11):
                partition.append(batch())
        await broker.stop()

    asyncio.run(story())


def with_broker(data: Path, story: Callable[[Broker], Awaitable[None]]) -> None:
    async def main() -> None:
        broker = await started(data)
        try:
            await story(broker)
        finally:
            await broker.stop()

    asyncio.run(main())


def readable(partition: Partition) -> int:
    return len(partition.read(0, 1 << 20, at_least_one=True).load())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = shutil.which("mount")
    if (
        mount is None
        or subprocess.run(
            [mount, "-t", "tmpfs", "-o", "size=8m", "tmpfs", tmp_path], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("a disk of its own needs the right to mount one")
    yield tmp_path
    subprocess.run(["umount", "--lazy", tmp_path], check=True)


def fill_up(disk: Path) -> Path:
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    assert shutil.disk_usage(disk).free == 0
    return ballast


def test_a_start_without_a_free_byte_serves_readers_and_goes_on_when_there_is_room(small_disk: Path) -> None:
    data = small_disk / "data"
    filled(data)
    ballast = fill_up(small_disk)

    async def story(broker: Broker) -> None:
        partition = broker._host.find("orders", 0)
        assert readable(partition)
        ballast.unlink()
        partition.append(batch())
        await broker._controller.create_topic(NewTopic("more", 1))

    with_broker(data, story)
    assert not (data / (METADATA + RESERVE_SUFFIX)).exists()

    async def taken_again(broker: Broker) -> None:
        assert broker._host.find("orders", 0).log.end_offset == 12

    with_broker(data, taken_again)
    assert (data / (METADATA + RESERVE_SUFFIX)).exists()


def test_without_room_for_the_metadata_the_start_says_in_one_line_to_free_space(small_disk: Path) -> None:
    data = small_disk / "data"
    filled(data)
    (data / (METADATA + RESERVE_SUFFIX)).unlink()
    ballast = fill_up(small_disk)
    with pytest.raises(Failure, match=rf"no room for metadata in {data / METADATA}: free some disk space"):
        asyncio.run(started(data))
    ballast.unlink()

    async def story(broker: Broker) -> None:
        assert readable(broker._host.find("orders", 0))

    with_broker(data, story)


@pytest.mark.parametrize("name", [leader_epochs.NAME, checkpoint.NAME, identity.NAME])
def test_a_file_that_cannot_be_read_takes_its_partition_and_no_other(tmp_path: Path, name: str) -> None:
    filled(tmp_path)
    (tmp_path / "orders-0" / name).unlink()
    (tmp_path / "orders-0" / name).mkdir()

    async def story(broker: Broker) -> None:
        assert readable(broker._host.find("orders", 1))
        with pytest.raises(KafkaError, match=name) as refused:
            broker._host.find("orders", 0)
        assert refused.value.code is ErrorCode.kafka_storage_error

    with_broker(tmp_path, story)


def test_a_consumer_skips_what_is_missing_and_the_start_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path)
    (tmp_path / "orders-0" / f"{3:020d}.log").unlink()

    async def story(broker: Broker) -> None:
        partition = broker._host.find("orders", 0)
        found = bytes(partition.read(3, 1 << 20, at_least_one=True).load())
        assert int.from_bytes(found[:8], "big") == 6
        partition.append(batch())
        assert partition.log.end_offset == 12

    with_broker(tmp_path, story)
    [line] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "orders-0: offsets 3 to 5 are missing: segment 00000000000000000003.log is not there" in line


@pytest.mark.parametrize("base", [0, 3])
def test_librdkafka_reads_on_behind_a_gap(tmp_path: Path, base: int) -> None:
    filled(tmp_path)
    (tmp_path / "orders-0" / f"{base:020d}.log").unlink()
    with LocalBroker(tmp_path) as broker:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "error"})
        consumer.assign([TopicPartition("orders", 0, base)])
        found = consumer.consume(11 - base - 3, timeout=20)
        consumer.close()
    assert [message.error() for message in found] == [None] * (11 - base - 3)
    assert [message.offset() for message in found] == list(range(base + 3, 11))


def contents(data: Path) -> dict[str, bytes]:
    return {str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", [META, METADATA])
def test_a_data_folder_of_a_later_version_says_so_and_is_left_as_it_is(tmp_path: Path, name: str) -> None:
    filled(tmp_path)
    if name == META:
        text = (tmp_path / META).read_text().replace("headrace-data 1", "headrace-data 2")
        (tmp_path / META).write_text(text)
    else:
        with sqlite3.connect(tmp_path / METADATA) as database:
            database.execute("PRAGMA user_version = 2")
        database.close()
    before = contents(tmp_path)
    with pytest.raises(Failure) as failure:
        asyncio.run(started(tmp_path))
    assert str(failure.value) == (
        f"{tmp_path / name} has format 2, this headrace knows format 1; run the version that wrote it"
    )
    assert contents(tmp_path) == before
