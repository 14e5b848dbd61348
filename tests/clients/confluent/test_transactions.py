"""Transactions as confluent-kafka (librdkafka) makes and reads them; it speaks the old versions of the requests."""

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.clients.confluent.conftest import NewConsumer, NewProducer, NewTopicFixture
from tests.clients.confluent.reading import produce, read, read_partition
from tests.clients.stories import story

PATIENCE_S = 30


def begun(new_producer: NewProducer, transactional_id: str, **config: object) -> Producer:
    producer = new_producer(transactional_id=transactional_id, **config)
    producer.init_transactions(PATIENCE_S)
    return producer


def in_transaction(producer: Producer, topic: str, values: list[bytes], *, commit: bool, partition: int = 0) -> None:
    producer.begin_transaction()
    produce(producer, topic, values, partition=partition)
    if commit:
        producer.commit_transaction(PATIENCE_S)
    else:
        producer.abort_transaction(PATIENCE_S)


def committed_reader(new_consumer: NewConsumer, **config: object) -> Consumer:
    return new_consumer(isolation_level="read_committed", **config)


def values_of(messages: list[Message]) -> list[bytes]:
    return [message.value() for message in messages]


@story("transactions")
def test_committed_transactions_are_read_and_aborted_ones_are_not(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer, unique: Callable[[str], str]
) -> None:
    topic, producer = new_topic(), begun(new_producer, unique("id"))
    for number in range(6):
        in_transaction(producer, topic, [b"%d-%d" % (number, at) for at in range(3)], commit=number % 2 == 0)
    wanted = [b"%d-%d" % (number, at) for number in (0, 2, 4) for at in range(3)]
    assert values_of(read_partition(committed_reader(new_consumer), topic, 9)) == wanted
    everything = read_partition(new_consumer(isolation_level="read_uncommitted"), topic, 18)
    assert values_of(everything) == [b"%d-%d" % (number, at) for number in range(6) for at in range(3)]


@story("transactions")
def test_a_transaction_over_partitions_is_not_read_before_its_commit(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer, unique: Callable[[str], str]
) -> None:
    topic, producer = new_topic(partitions=3), begun(new_producer, unique("id"))
    reader = committed_reader(new_consumer)
    reader.assign([TopicPartition(topic, index, 0) for index in range(3)])
    producer.begin_transaction()
    for index in range(3):
        produce(producer, topic, [b"in %d" % index], partition=index)
        produce(new_producer(), topic, [b"after %d" % index], partition=index)
    assert reader.consume(1, 0.5) == []
    assert reader.get_watermark_offsets(TopicPartition(topic, 0), 10) == (0, 0)
    producer.commit_transaction(PATIENCE_S)
    seen = {message.value() for message in read(reader, 6)}
    assert seen == {b"%s %d" % (word, index) for word in (b"in", b"after") for index in range(3)}


@story("transactions")
def test_two_transactions_in_one_partition_end_in_any_order(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer, unique: Callable[[str], str]
) -> None:
    topic = new_topic()
    slow, quick = begun(new_producer, unique("slow")), begun(new_producer, unique("quick"))
    slow.begin_transaction()
    produce(slow, topic, [b"slow"], partition=0)
    in_transaction(quick, topic, [b"gone"], commit=False)
    in_transaction(quick, topic, [b"quick"], commit=True)
    reader = committed_reader(new_consumer)
    reader.assign([TopicPartition(topic, 0, 0)])
    assert reader.consume(1, 0.5) == []
    slow.commit_transaction(PATIENCE_S)
    assert values_of(read(reader, 2)) == [b"slow", b"quick"]


@story("fencing")
def test_the_first_producer_of_an_id_is_fenced_by_the_second(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer, unique: Callable[[str], str]
) -> None:
    topic, transactional_id = new_topic(), unique("id")
    first = begun(new_producer, transactional_id)
    first.begin_transaction()
    produce(first, topic, [b"lost"], partition=0)
    second = begun(new_producer, transactional_id)
    in_transaction(second, topic, [b"kept"], commit=True)
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].fatal()
    assert values_of(read_partition(committed_reader(new_consumer), topic, 1)) == [b"kept"]


@story("transactional-offsets")
def test_offsets_move_with_the_transaction_or_not_at_all(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer, unique: Callable[[str], str]
) -> None:
    source, target, producer = new_topic(), new_topic(name=unique("target")), begun(new_producer, unique("id"))
    produce(new_producer(), source, [b"%d" % number for number in range(10)], partition=0)
    group, place = unique("worker"), TopicPartition(source, 0)
    for commit in (False, True):
        worker = committed_reader(new_consumer, group_id=group)
        worker.subscribe([source])
        messages = read(worker, 10)
        assert values_of(messages) == [b"%d" % number for number in range(10)]
        producer.begin_transaction()
        produce(producer, target, [b"done " + message.value() for message in messages], partition=0)
        metadata = worker.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(source, 0, 10)], metadata, PATIENCE_S)
        if commit:
            producer.commit_transaction(PATIENCE_S)
            assert worker.committed([place], 10)[0].offset == 10
        else:
            producer.abort_transaction(PATIENCE_S)
            assert worker.committed([place], 10)[0].offset < 0
        worker.close()
    wanted = [b"done %d" % number for number in range(10)]
    assert values_of(read_partition(committed_reader(new_consumer), target, 10)) == wanted


@story("transactions")
def test_an_empty_transaction_ends(new_producer: NewProducer, unique: Callable[[str], str]) -> None:
    producer = begun(new_producer, unique("id"))
    for _ in range(2):
        producer.begin_transaction()
        producer.commit_transaction(PATIENCE_S)
        producer.begin_transaction()
        producer.abort_transaction(PATIENCE_S)
