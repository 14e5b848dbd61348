"""A partition's last stable offset: where it stands, what moves it, and whom that wakes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from typing import Any

from headrace.log.partition_log import PartitionLog
from headrace.model.image import PartitionImage
from headrace.model.topic_config import TopicConfig
from headrace.model.transaction_end import TransactionEnd
from headrace.replicas.broker_context import BrokerContext
from headrace.replicas.partition import Partition
from headrace.replicas.waiters import Audience, Wanting
from headrace.wire.batches import TRANSACTIONAL
from headrace.wire.record import Record
from headrace.wire.records import encode_batch
from headrace.world.clock import SystemClock
from sim.disk import SimDisk
from tests.unit.log.batches import NOW, batch, open_log


class Room:
    """One partition that leads; syncs are done when the test says so."""

    def __init__(self, config: TopicConfig = TopicConfig()) -> None:
        self.disk = SimDisk()
        self.config = config
        self.syncs: list[asyncio.Future[None]] = []
        self.open()

    def open(self) -> None:
        self.log = open_log(self.disk, self.config)
        context = BrokerContext(1, SystemClock(), self.request_sync, self.disk.off_loop)
        self.partition = Partition("orders", uuid.UUID(int=1), 0, self.log, context, self.log.end_offset)
        self.partition.apply(PartitionImage(0, (1,), (1,), 1, 0, 0))

    def request_sync(self, log: PartitionLog) -> asyncio.Future[None]:
        self.syncs.append(asyncio.get_running_loop().create_future())
        return self.syncs[-1]

    async def sync(self) -> None:
        self.log.sync()
        self.syncs.pop().set_result(None)
        await asyncio.sleep(0)

    def write(self, sequence: int = 0, *, producer: int = 7, epoch: int = 0) -> None:
        encoded = encode_batch(
            [Record(0, NOW, b"k", b"v")],
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )
        self.partition.append(memoryview(encoded), transactional=True)

    def end(self, *, commit: bool = True, producer: int = 7, epoch: int = 1) -> None:
        self.partition.append_end(TransactionEnd(producer, epoch, 0, commit, 2))

    def wait(self, missing_bytes: int = 1, *, stable: bool = True) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        audience = Audience.STABLE if stable else Audience.COMMITTED
        self.partition.readers.enter(Wanting(missing_bytes, done), audience, self.partition)
        return done


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def test_it_is_the_high_watermark_or_the_oldest_open_transaction() -> None:
    async def story() -> None:
        room = Room()
        partition = room.partition
        partition.append(batch(2))
        assert partition.last_stable_offset == partition.high_watermark == 2
        room.write(producer=7)
        room.write(producer=8)
        assert (partition.last_stable_offset, partition.high_watermark) == (2, 4)
        room.end(producer=7)
        assert (partition.last_stable_offset, partition.high_watermark) == (3, 5)
        room.end(producer=8, commit=False)
        assert partition.last_stable_offset == partition.high_watermark == 6
        assert partition.log.aborted(0, 6) == [(8, 3)]

    run(story())


def test_deleting_an_open_transactions_first_records_leaves_it_in_the_log() -> None:
    async def story() -> None:
        room = Room()
        room.write(0)
        room.write(1)
        room.partition.delete_records(1)
        assert room.partition.last_stable_offset == 1
        room.partition.delete_records(-1)
        assert room.partition.last_stable_offset == room.partition.high_watermark == 2

    run(story())


def test_it_is_the_same_after_a_restart() -> None:
    async def story() -> None:
        room = Room()
        room.write(producer=7)
        room.write(producer=8)
        room.end(producer=7)
        assert room.partition.last_stable_offset == 1
        room.open()
        assert (room.partition.last_stable_offset, room.partition.high_watermark) == (1, 3)
        assert room.partition.has_open_transaction(8, 0)

    run(story())


def test_readers_of_committed_records_sleep_through_an_open_transaction_and_wake_at_its_end() -> None:
    async def story() -> None:
        room = Room()
        waits, hasty = room.wait(10_000), room.wait(stable=False)
        room.write()
        room.partition.append(batch())
        assert hasty.done()
        assert not waits.done()
        room.end()
        assert waits.done(), "however few bytes that is: all of a transaction came at once"

    run(story())


def test_without_transactions_they_wake_when_enough_has_come() -> None:
    async def story() -> None:
        room = Room()
        waits = room.wait(len(batch()) + 1)
        room.partition.append(batch())
        assert not waits.done()
        room.partition.append(batch())
        assert waits.done()

    run(story())


def test_an_end_counts_once_it_is_on_disk_where_the_topic_asks_for_that() -> None:
    async def story() -> None:
        room = Room(TopicConfig(fsync=True))
        room.write()
        await room.sync()
        assert (room.partition.last_stable_offset, room.partition.high_watermark) == (0, 1)
        waits = room.wait()
        room.end(commit=False)
        assert room.partition.last_stable_offset == 0
        assert not waits.done()
        await room.sync()
        assert room.partition.last_stable_offset == 2
        assert waits.done()

    run(story())


def test_an_end_that_comes_twice_is_committed_when_the_first_is() -> None:
    async def story() -> None:
        room = Room(TopicConfig(fsync=True))
        room.write()
        end = TransactionEnd(7, 1, 0, True, 2)
        room.partition.append_end(end)
        again = room.partition.append_end(end)
        assert again.duplicate
        waits = room.partition.committed(again)
        assert waits is not None
        await room.sync()
        assert waits.done()

    run(story())
