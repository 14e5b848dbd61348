"""Deduplication by message id with real clients: across producers, restarts and transactions, as far as the window."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

TOPIC = "payments"
PATIENCE_S = 30
WINDOW_S = 600


def made(broker: Any, **more: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {"headrace.dedup.window.ms": str(WINDOW_S * 1000)} | more
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(PATIENCE_S)


def send(broker: Any, *ids: str, **settings: Any) -> list[int]:
    """A producer of its own sends a record for each id; the offsets that it is told."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 50} | settings)
    offsets: list[int] = []

    def told(error: Any, message: Any) -> None:
        assert error is None
        offsets.append(message.offset())

    for name in ids:
        producer.produce(TOPIC, name.encode(), headers={"headrace.id": name}, on_delivery=told)
    assert producer.flush(PATIENCE_S) == 0
    return offsets


def read(broker: Any, count: int) -> list[bytes]:
    """`count` values from the start of the topic; the last one must be the last of the topic."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    messages = consumer.consume(count, PATIENCE_S)
    position = messages[-1].offset() + 1
    _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), PATIENCE_S)
    consumer.close()
    assert position == end, "send a last record that is stored"
    return [message.value() for message in messages]


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_second_producer_is_answered_and_its_duplicates_are_not_stored(
    broker: Any, idempotent: bool, codec: str
) -> None:
    made(broker)
    settings = {"enable.idempotence": idempotent, "compression.type": codec}
    assert send(broker, "a", "b", "c", **settings) == [0, 1, 2]
    assert send(broker, "c", "d", "a", "b", "e", **settings) == [3, 4, 5, 6, 7]
    assert read(broker, 5) == [b"a", b"b", b"c", b"d", b"e"]


def test_a_consumer_gets_past_duplicates_at_the_end(broker: Any) -> None:
    made(broker)
    send(broker, "a")
    assert send(broker, "a", "a") == [1, 2]
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    first, last = consumer.consume(2, PATIENCE_S)
    consumer.close()
    assert (first.offset(), first.value()) == (0, b"a")
    assert (last.error().code(), last.offset()) == (KafkaError._PARTITION_EOF, 3)


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_ids_are_known_after_a_restart(broker: Any, end: str) -> None:
    made(broker)
    send(broker, "a", "b")
    if end == "kill":
        broker.kill()
    broker.restart()
    send(broker, "b", "a", "c")
    assert read(broker, 3) == [b"a", b"b", b"c"]


def test_an_id_may_come_again_when_the_window_has_passed(broker: Any) -> None:
    made(broker)
    send(broker, "a")
    broker.clock.advance(seconds=WINDOW_S - 5)
    send(broker, "a", "b")
    broker.clock.advance(seconds=10)
    send(broker, "b", "a")
    assert read(broker, 3) == [b"a", b"b", b"a"]


def test_it_is_switched_on_for_a_topic_that_is_there(broker: Any) -> None:
    made(broker, **{"headrace.dedup.window.ms": "0"})
    send(broker, "a", "a")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entry = ConfigEntry("headrace.dedup.window.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource("TOPIC", TOPIC, incremental_configs=[entry])
    admin.incremental_alter_configs([change])[change].result(PATIENCE_S)
    send(broker, "a", "a", "b")
    assert read(broker, 4) == [b"a", b"a", b"a", b"b"]


@pytest.mark.parametrize("commit", [True, False])
def test_only_a_committed_transaction_keeps_others_out(broker: Any, commit: bool) -> None:
    made(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "x"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for _ in range(2):
        producer.produce(TOPIC, b"inside", headers={"headrace.id": "a"})
    assert producer.flush(PATIENCE_S) == 0
    if commit:
        producer.commit_transaction(PATIENCE_S)
    else:
        producer.abort_transaction(PATIENCE_S)
    send(broker, "a", "z")
    assert read(broker, 2) == ([b"inside", b"z"] if commit else [b"a", b"z"])
