"""Markers are delivered until every partition has one or is gone, and by nobody who was fenced."""

import asyncio
from typing import Any

import pytest

from headrace.coordinators.transactions.markers import Mark
from headrace.model.image import GROUP_OFFSETS_TOPIC
from headrace.model.transaction_end import TransactionEnd
from headrace.server.marker_delivery import MarkerDelivery
from headrace.wire.errors import ErrorCode, KafkaError
from sim.loop import SimClock, run

END = TransactionEnd(producer_id=7, producer_epoch=1, coordinator_epoch=3, commit=True, version=2)


class Partition:
    """Refuses its first markers with these errors; `slow` commits what it takes after a second."""

    def __init__(self, *errors: ErrorCode, slow: bool = False) -> None:
        self.errors = list(errors)
        self.slow = slow
        self.taken = 0

    def append_end(self, end: TransactionEnd) -> TransactionEnd:
        assert end is END
        if self.errors:
            raise KafkaError(self.errors.pop(0))
        self.taken += 1
        return end

    def committed(self, appended: TransactionEnd) -> "asyncio.Future[None] | None":
        if not self.slow:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(1, future.set_result, None)
        return future


class Host:
    def __init__(self, partitions: dict[int, Partition]) -> None:
        self.partitions = partitions

    def find(self, topic: str, index: int) -> Partition:
        if index not in self.partitions:
            raise KafkaError(ErrorCode.unknown_topic_or_partition)
        return self.partitions[index]


class Groups:
    """A coordinator that loads for its first two markers."""

    def __init__(self) -> None:
        self.ended: list[int] = []
        self.loading = 2

    def end_transaction(self, partition: int, end: TransactionEnd) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.loading:
            self.loading -= 1
            future.set_exception(KafkaError(ErrorCode.coordinator_load_in_progress))
        else:
            self.ended.append(partition)
            future.set_result(None)
        return future


def delivery(partitions: dict[int, Partition], groups: Any = None) -> MarkerDelivery:
    return MarkerDelivery(Host(partitions), groups, SimClock())  # type: ignore[arg-type]


def test_what_can_be_written_is_written_before_the_call_returns() -> None:
    async def story() -> None:
        partitions = {0: Partition(), 1: Partition()}
        written = delivery(partitions).write([Mark("t", 0, END), Mark("t", 1, END)])
        assert written.done()
        assert [partition.taken for partition in partitions.values()] == [1, 1]
        assert delivery({}).write([]).done()

    run(story(), 1)


def test_partitions_in_trouble_are_tried_until_they_take_it() -> None:
    async def story() -> None:
        trouble = [ErrorCode.not_leader_or_follower, ErrorCode.kafka_storage_error]
        partitions = {0: Partition(*trouble), 1: Partition(slow=True)}
        written = delivery(partitions).write([Mark("t", 0, END), Mark("t", 1, END), Mark("t", 9, END)])
        assert not written.done()
        await written
        assert [partition.taken for partition in partitions.values()] == [1, 1]

    run(story(), 1)


def test_group_offsets_end_through_their_coordinator() -> None:
    async def story() -> None:
        groups = Groups()
        await delivery({}, groups).write([Mark(GROUP_OFFSETS_TOPIC, 5, END)])
        assert groups.ended == [5]

    run(story(), 1)


def test_a_later_epoch_in_the_partition_means_that_it_has_its_end() -> None:
    async def story() -> None:
        assert delivery({0: Partition(ErrorCode.invalid_producer_epoch)}).write([Mark("t", 0, END)]).done()

    run(story(), 1)


def test_a_coordinator_that_was_replaced_does_not_go_on() -> None:
    async def story() -> None:
        partition = Partition(ErrorCode.transaction_coordinator_fenced)
        with pytest.raises(KafkaError):
            await delivery({0: partition}).write([Mark("t", 0, END)])
        assert partition.taken == 0

    run(story(), 1)
