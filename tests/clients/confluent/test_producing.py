"""Acknowledgements, idempotence, order and partitions, as confluent-kafka's producer sees them."""

import zlib
from collections import defaultdict

import pytest
from confluent_kafka import TopicPartition

from tests.clients.confluent.conftest import NewConsumer, NewProducer, NewTopicFixture
from tests.clients.confluent.reading import produce, read, read_partition
from tests.clients.stories import story


@story("acks")
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_messages_arrive_with_acks(
    acks: str, new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    values = [b"%d" % number for number in range(20)]
    produce(new_producer(acks=acks), topic, values)
    assert [message.value() for message in read_partition(new_consumer(), topic, 20)] == values


@story("idempotence")
def test_idempotent_producer_keeps_every_message_once_and_in_order(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    values = [b"%d" % number for number in range(2000)]
    reports = produce(new_producer(enable_idempotence=True, batch_num_messages=20, linger_ms=0), topic, values)
    assert sorted(report.offset() for report in reports) == list(range(2000))
    messages = read_partition(new_consumer(), topic, 2000)
    assert [message.value() for message in messages] == values
    assert [message.offset() for message in messages] == list(range(2000))


@story("idempotence")
def test_two_idempotent_producers_share_a_partition(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    one, two = (new_producer(enable_idempotence=True) for _ in range(2))
    for turn in range(5):
        produce(one, topic, [b"one-%d" % turn])
        produce(two, topic, [b"two-%d" % turn])
    values = [message.value() for message in read_partition(new_consumer(), topic, 10)]
    assert values == [b"%s-%d" % (name, turn) for turn in range(5) for name in (b"one", b"two")]


@story("key-order")
def test_messages_of_one_key_stay_in_order(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic(partitions=4)
    producer = new_producer()
    for number in range(400):
        producer.produce(topic, b"%d" % number, key=b"key-%d" % (number % 10))
    assert producer.flush(30) == 0
    consumer = new_consumer()
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(4)])
    by_key: dict[bytes, list[int]] = defaultdict(list)
    for message in read(consumer, 400):
        by_key[message.key()].append(int(message.value()))
    assert by_key == {b"key-%d" % key: list(range(key, 400, 10)) for key in range(10)}


@story("partitioning")
def test_key_decides_the_partition(new_topic: NewTopicFixture, new_producer: NewProducer) -> None:
    topic = new_topic(partitions=5)
    producer = new_producer(partitioner="consistent_random")
    for key in (b"a", b"bb", b"ccc", "ключ".encode()):
        reports = produce(producer, topic, [b"1", b"2"], key=key)
        assert {report.partition() for report in reports} == {zlib.crc32(key) % 5}


@story("partitioning")
def test_chosen_partition_is_used(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic(partitions=3)
    producer = new_producer()
    for partition in range(3):
        produce(producer, topic, [b"to %d" % partition], partition=partition)
    consumer = new_consumer()
    for partition in range(3):
        assert read_partition(consumer, topic, 1, partition)[0].value() == b"to %d" % partition


@story("many-messages")
def test_fifty_thousand_messages_come_back_in_order(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    values = [b"%d" % number for number in range(50_000)]
    produce(new_producer(linger_ms=20), topic, values)
    assert [message.value() for message in read_partition(new_consumer(), topic, 50_000)] == values
