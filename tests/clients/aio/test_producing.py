"""Acknowledgements, idempotence, order and partitions, as aiokafka's producer sees them."""

from collections import defaultdict

import pytest
from aiokafka import TopicPartition
from aiokafka.partitioner import murmur2

from tests.clients.aio.clients import Clients, produce, read, read_partition
from tests.clients.stories import story


@story("acks")
@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_messages_arrive_with_acks(acks: int | str, clients: Clients) -> None:
    topic = await clients.topic()
    values = [b"%d" % number for number in range(20)]
    await produce(await clients.producer(acks=acks), topic, values)
    records = await read_partition(await clients.consumer(), topic, 20)
    assert [record.value for record in records] == values


@story("idempotence")
async def test_idempotent_producer_keeps_every_message_once_and_in_order(clients: Clients) -> None:
    topic = await clients.topic()
    values = [b"%d" % number for number in range(1000)]
    told = await produce(await clients.producer(enable_idempotence=True, max_batch_size=300), topic, values)
    assert [report.offset for report in told] == list(range(1000))
    records = await read_partition(await clients.consumer(), topic, 1000)
    assert [record.value for record in records] == values


@story("key-order")
async def test_messages_of_one_key_stay_in_order(clients: Clients) -> None:
    topic = await clients.topic(partitions=4)
    producer = await clients.producer()
    for number in range(400):
        await producer.send(topic, b"%d" % number, key=b"key-%d" % (number % 10))
    await producer.flush()
    consumer = await clients.consumer()
    consumer.assign([TopicPartition(topic, partition) for partition in range(4)])
    by_key: dict[bytes, list[int]] = defaultdict(list)
    for record in await read(consumer, 400):
        by_key[record.key].append(int(record.value))
    assert by_key == {b"key-%d" % key: list(range(key, 400, 10)) for key in range(10)}


@story("partitioning")
async def test_key_decides_the_partition(clients: Clients) -> None:
    topic = await clients.topic(partitions=5)
    producer = await clients.producer()
    for key in (b"a", b"bb", b"ccc", "ключ".encode()):
        told = await produce(producer, topic, [b"1", b"2"], key=key)
        assert {report.partition for report in told} == {(murmur2(key) & 0x7FFFFFFF) % 5}


@story("partitioning")
async def test_chosen_partition_is_used(clients: Clients) -> None:
    topic = await clients.topic(partitions=3)
    producer = await clients.producer()
    for partition in range(3):
        await produce(producer, topic, [b"to %d" % partition], partition=partition)
    for partition in range(3):
        assert (await read_partition(await clients.consumer(), topic, 1, partition))[0].value == b"to %d" % partition


@story("many-messages")
async def test_ten_thousand_messages_come_back_in_order(clients: Clients) -> None:
    topic = await clients.topic()
    values = [b"%d" % number for number in range(10_000)]
    await produce(await clients.producer(linger_ms=20), topic, values)
    records = await read_partition(await clients.consumer(), topic, 10_000)
    assert [record.value for record in records] == values


@story("many-messages")
async def test_hand_made_batch_comes_back(clients: Clients) -> None:
    topic = await clients.topic()
    producer = await clients.producer()
    batch = producer.create_batch()
    for number in range(100):
        assert batch.append(key=None, value=b"%d" % number, timestamp=None) is not None
    await (await producer.send_batch(batch, topic, partition=0))
    records = await read_partition(await clients.consumer(), topic, 100)
    assert [int(record.value) for record in records] == list(range(100))
