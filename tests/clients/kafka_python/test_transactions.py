"""Transactions as kafka-python makes and reads them."""

from collections.abc import Callable
from functools import partial

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import AbortTransactionSpec
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from tests.clients.kafka_python.conftest import NewConsumer, NewProducer, NewTopic
from tests.clients.kafka_python.reading import read_partition
from tests.clients.patience import until
from tests.clients.stories import story


def begun(new_producer: NewProducer, transactional_id: str) -> KafkaProducer:
    producer = new_producer(transactional_id=transactional_id)
    producer.init_transactions()
    return producer


def in_transaction(producer: KafkaProducer, topic: str, values: list[bytes], *, commit: bool) -> None:
    producer.begin_transaction()
    for value in values:
        producer.send(topic, value, partition=0)
    if commit:
        producer.commit_transaction()
    else:
        producer.flush()
        producer.abort_transaction()


@story("transactions")
def test_committed_transactions_are_read_and_aborted_ones_are_not(
    new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer, unique: Callable[[str], str]
) -> None:
    topic, producer = new_topic(), begun(new_producer, unique("id"))
    for number in range(4):
        in_transaction(producer, topic, [b"%d-%d" % (number, at) for at in range(3)], commit=number % 2 == 0)
    records = read_partition(new_consumer(isolation_level="read_committed"), topic, 6)
    assert [record.value for record in records] == [b"%d-%d" % (number, at) for number in (0, 2) for at in range(3)]


@story("transactional-offsets")
def test_offsets_move_with_the_transaction_or_not_at_all(
    new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer, unique: Callable[[str], str]
) -> None:
    source, group = new_topic(), unique("worker")
    producer, place = begun(new_producer, unique("id")), TopicPartition(source, 0)
    in_transaction(producer, source, [b"one", b"two"], commit=True)
    reader = new_consumer(group_id=group)

    def committed_is(expected: int | None) -> bool:
        return bool(reader.committed(place) == expected)

    for commit, offset, expected in ((False, 1, None), (True, 2, 2)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction({place: OffsetAndMetadata(offset, "", -1)}, group)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        # The end is answered before its markers are written.
        until(f"the committed offset is {expected}", partial(committed_is, expected))


@story("fencing")
def test_the_first_producer_of_an_id_is_fenced_by_the_second(
    new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer, unique: Callable[[str], str]
) -> None:
    topic, transactional_id = new_topic(), unique("id")
    first = begun(new_producer, transactional_id)
    first.begin_transaction()
    first.send(topic, b"lost", partition=0).get(20)
    second = begun(new_producer, transactional_id)
    in_transaction(second, topic, [b"kept"], commit=True)
    with pytest.raises(KafkaError):
        first.commit_transaction()
    records = read_partition(new_consumer(isolation_level="read_committed"), topic, 1)
    assert [record.value for record in records] == [b"kept"]


@story("transactions-admin")
def test_a_hanging_transaction_is_found_and_ended(
    admin: KafkaAdminClient,
    new_topic: NewTopic,
    new_producer: NewProducer,
    new_consumer: NewConsumer,
    unique: Callable[[str], str],
) -> None:
    topic, transactional_id = new_topic(), unique("id")
    place, producer = TopicPartition(topic, 0), begun(new_producer, transactional_id)
    producer.begin_transaction()
    producer.send(topic, b"lost", partition=0).get(20)
    listed = [found for some in admin.list_transactions(state_filters=["Ongoing"]).values() for found in some]
    assert transactional_id in {found.transactional_id for found in listed}
    described = admin.describe_transactions([transactional_id])[transactional_id]
    assert (described.state.value, described.topic_partitions) == ("Ongoing", {place})
    [state] = admin.describe_producers([place])[place].active_producers
    assert (state.producer_id, state.current_transaction_start_offset) == (described.producer_id, 0)
    admin.abort_transaction(AbortTransactionSpec(place, state.producer_id, state.producer_epoch))
    new_producer().send(topic, b"after", partition=0).get(20)
    records = read_partition(new_consumer(isolation_level="read_committed"), topic, 1)
    assert [record.value for record in records] == [b"after"]
    with pytest.raises(KafkaError):
        admin.describe_transactions([unique("unknown")])
