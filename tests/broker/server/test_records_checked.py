"""Records that nobody could read are refused by a real broker, each batch for itself, and no consumer is held up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer as Confluent
from confluent_kafka import TopicPartition
from kafka import KafkaConsumer as KafkaPython
from kafka.structs import TopicPartition as KafkaPythonPartition

from headrace.testing.local_broker import LocalBroker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from headrace.wire.records import decode
from tests.raw_client import RawClient
from tests.sending import answers, create, produce
from tests.unit.wire.bad_batches import CASES, GOOD, TAKEN, Case, sealed

OPEN = [case for case in CASES if not case.topic and ":" not in case.what]  # nothing in them is compressed
PATIENCE_S = 30.0


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[RawClient]:
    with RawClient(broker.port) as opened:
        yield opened


def test_each_bad_batch_is_answered_as_it_is_written_down(broker: LocalBroker) -> None:
    found = answers(broker.port)
    for case, answer in zip(CASES, found, strict=True):
        assert ErrorCode(answer.error_code) is case.answer, (case.what, answer)
        assert (answer.error_message is None) == (case.answer is TAKEN)
        places = [] if case.place is None else [case.place]
        assert [error.batch_index for error in answer.record_errors] == places, case.what
        assert (answer.base_offset >= 0) == (case.answer is TAKEN)


def test_in_a_request_for_several_partitions_only_the_bad_one_is_refused(client: RawClient) -> None:
    create(client, "orders", partitions=3)
    bad = next(case for case in OPEN if case.what.startswith("a length that leads into"))
    found = produce(client, "orders", {0: sealed(GOOD), 1: bad.batch, 2: sealed(GOOD)})
    assert [answer.error_code for answer in found] == [0, ErrorCode.invalid_record, 0]
    assert [answer.base_offset for answer in found] == [0, -1, 0]
    assert found[1].error_message == "1 of the batch's records, the first at 1: it is longer than its fields"
    assert [produce(client, "orders", {at: sealed(GOOD)})[0].base_offset for at in range(3)] == [3, 0, 3]


def read_by_confluent(broker: LocalBroker, topic: str, count: int) -> list[int]:
    consumer = Confluent({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            message.headers()
            found.append(message.offset())
    consumer.close()
    return found


def read_by_kafka_python(broker: LocalBroker, topic: str, count: int) -> list[int]:
    consumer = KafkaPython(bootstrap_servers=broker.bootstrap, group_id=None, enable_auto_commit=False)
    place = KafkaPythonPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    found: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        for messages in consumer.poll(timeout_ms=200).values():
            found += [message.offset for message in messages]
    consumer.close()
    return found


@pytest.mark.parametrize("read", [read_by_confluent, read_by_kafka_python])
def test_a_consumer_reads_on_after_whatever_was_sent(
    broker: LocalBroker, client: RawClient, read: Callable[[LocalBroker, str, int], list[int]]
) -> None:
    create(client, "orders")
    for case in [*OPEN, Case("the last", sealed(GOOD), TAKEN, None, TAKEN)]:
        produce(client, "orders", {0: case.batch})
    stored = 3 * (1 + sum(case.answer is TAKEN for case in OPEN))
    assert read(broker, "orders", stored) == list(range(stored))


def test_what_a_reader_is_given_has_the_latest_time_in_its_header(broker: LocalBroker, client: RawClient) -> None:
    create(client, "orders")
    produce(client, "orders", {0: sealed(GOOD, max_time=5)})
    partition = Message(partition=0, fetch_offset=0, partition_max_bytes=10_000)
    fetch = Message(max_wait_ms=0, min_bytes=1, topics=[Message(topic="orders", partitions=[partition])])
    batch = client.call(1, 11, fetch).responses[0].partitions[0].records
    assert int.from_bytes(batch[35:43], "big") == max(record.timestamp for record in decode(batch))
