"""Acknowledgements, idempotence, order and partitions, as kafka-python's producer sees them."""

from collections import defaultdict
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.partitioner.default import murmur2

from tests.clients.kafka_python.conftest import NewConsumer, NewProducer, NewTopic
from tests.clients.kafka_python.reading import produce, read, read_partition
from tests.clients.stories import story


@story("acks")
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_messages_arrive_with_acks(
    acks: int | str, new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    values = [b"%d" % number for number in range(20)]
    plain: dict[str, Any] = {} if acks == "all" else {"enable_idempotence": False}
    produce(new_producer(acks=acks, **plain), topic, values)
    assert [record.value for record in read_partition(new_consumer(), topic, 20)] == values


@story("idempotence")
def test_idempotent_producer_keeps_every_message_once_and_in_order(
    new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    values = [b"%d" % number for number in range(1000)]
    told = produce(new_producer(enable_idempotence=True, batch_size=300), topic, values)
    assert [report.offset for report in told] == list(range(1000))
    assert [record.value for record in read_partition(new_consumer(), topic, 1000)] == values


@story("key-order")
def test_messages_of_one_key_stay_in_order(
    new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic(partitions=4)
    producer = new_producer()
    for number in range(400):
        producer.send(topic, b"%d" % number, key=b"key-%d" % (number % 10))
    producer.flush(30)
    consumer = new_consumer()
    consumer.assign([TopicPartition(topic, partition) for partition in range(4)])
    by_key: dict[bytes, list[int]] = defaultdict(list)
    for record in read(consumer, 400):
        by_key[record.key].append(int(record.value))
    assert by_key == {b"key-%d" % key: list(range(key, 400, 10)) for key in range(10)}


@story("partitioning")
def test_key_decides_the_partition(new_topic: NewTopic, new_producer: NewProducer) -> None:
    topic = new_topic(partitions=5)
    producer = new_producer()
    for key in (b"a", b"bb", b"ccc", "ключ".encode()):
        told = produce(producer, topic, [b"1", b"2"], key=key)
        assert {report.partition for report in told} == {(murmur2(key) & 0x7FFFFFFF) % 5}


@story("partitioning")
def test_chosen_partition_is_used(new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer) -> None:
    topic = new_topic(partitions=3)
    producer = new_producer()
    for partition in range(3):
        produce(producer, topic, [b"to %d" % partition], partition=partition)
    consumer = new_consumer()
    for partition in range(3):
        assert read_partition(consumer, topic, 1, partition)[0].value == b"to %d" % partition


@story("many-messages")
def test_ten_thousand_messages_come_back_in_order(
    new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    values = [b"%d" % number for number in range(10_000)]
    produce(new_producer(linger_ms=20), topic, values)
    assert [record.value for record in read_partition(new_consumer(), topic, 10_000)] == values
