"""Transactions as aiokafka makes and reads them; it speaks the first version of each request."""

from functools import partial

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from tests.clients.aio.clients import Clients, produce, read, read_partition, until
from tests.clients.stories import story


async def in_transaction(producer: AIOKafkaProducer, topic: str, values: list[bytes], *, commit: bool) -> None:
    await producer.begin_transaction()
    await produce(producer, topic, values, partition=0)
    await (producer.commit_transaction() if commit else producer.abort_transaction())


@story("transactions")
async def test_committed_transactions_are_read_and_aborted_ones_are_not(clients: Clients) -> None:
    topic = await clients.topic()
    producer = await clients.producer(transactional_id=clients.unique("id"))
    for number in range(4):
        await in_transaction(producer, topic, [b"%d-%d" % (number, at) for at in range(3)], commit=number % 2 == 0)
    reader = await clients.consumer(isolation_level="read_committed")
    records = await read_partition(reader, topic, 6)
    assert [record.value for record in records] == [b"%d-%d" % (number, at) for number in (0, 2) for at in range(3)]


@story("transactional-offsets")
async def test_offsets_move_with_the_transaction_or_not_at_all(clients: Clients) -> None:
    source, group = await clients.topic(), clients.unique("worker")
    await produce(await clients.producer(), source, [b"%d" % number for number in range(5)])
    producer = await clients.producer(transactional_id=clients.unique("id"))
    place, reader = TopicPartition(source, 0), await clients.consumer(group_id=group)
    reader.assign([place])
    assert len(await read(reader, 5)) == 5

    async def committed_is(expected: int | None) -> bool:
        return bool(await reader.committed(place) == expected)

    for commit, offset, expected in ((False, 4, None), (True, 5, 5)):
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({place: offset}, group)
        await (producer.commit_transaction() if commit else producer.abort_transaction())
        # The end is answered before its markers are written, and this client does not ask for stable offsets only.
        await until(f"the committed offset is {expected}", partial(committed_is, expected))


@story("fencing")
async def test_the_first_producer_of_an_id_is_fenced_by_the_second(clients: Clients) -> None:
    topic, transactional_id = await clients.topic(), clients.unique("id")
    first = await clients.producer(transactional_id=transactional_id)
    await first.begin_transaction()
    await produce(first, topic, [b"lost"], partition=0)
    second = await clients.producer(transactional_id=transactional_id)
    await in_transaction(second, topic, [b"kept"], commit=True)
    with pytest.raises(KafkaError):
        await first.commit_transaction()
    reader = await clients.consumer(isolation_level="read_committed")
    assert [record.value for record in await read_partition(reader, topic, 1)] == [b"kept"]
