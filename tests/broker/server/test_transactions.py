"""Transactions through time, restarts and crashes, with a real producer and a real consumer."""

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

TOPIC = "orders"
PATIENCE_S = 30


def begun(broker: Any, transactional_id: str = "x", **config: Any) -> Producer:
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, "log_level": 0}
    producer = Producer(settings | {key.replace("_", "."): value for key, value in config.items()})
    producer.init_transactions(PATIENCE_S)
    return producer


def send(producer: Producer, value: bytes, partition: int = 0) -> None:
    producer.produce(TOPIC, value, partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def read(broker: Any, count: int, *, isolation: str = "read_committed", wait_s: float = PATIENCE_S) -> list[bytes]:
    """Up to `count` values from the start of the topic."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "isolation.level": isolation}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    messages = consumer.consume(count, wait_s)
    consumer.close()
    return [message.value() for message in messages]


def stable_end(broker: Any) -> int:
    """Where a read_committed consumer's log ends."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "asker", "isolation.level": "read_committed"}
    consumer = Consumer(settings)
    _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), PATIENCE_S)
    consumer.close()
    return int(end)


def test_a_transaction_that_is_open_for_too_long_is_aborted(broker: Any) -> None:
    producer = begun(broker, transaction_timeout_ms=60_000)
    producer.begin_transaction()
    send(producer, b"late")
    other = Producer({"bootstrap.servers": broker.bootstrap})
    send(other, b"after")
    broker.clock.advance(seconds=59)
    assert stable_end(broker) == 0
    broker.clock.advance(seconds=2)
    assert stable_end(broker) == 3
    assert read(broker, 1) == [b"after"]


def test_a_producer_whose_time_was_up_goes_on_after_an_abort(broker: Any) -> None:
    producer = begun(broker, transaction_timeout_ms=60_000)
    producer.begin_transaction()
    send(producer, b"late")
    broker.clock.advance(seconds=61)
    reports: list[KafkaError] = []
    producer.produce(TOPIC, b"too late", partition=0, on_delivery=lambda error, _: reports.append(error))
    producer.flush(PATIENCE_S)
    assert reports[0] is not None
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].txn_requires_abort()
    producer.abort_transaction(PATIENCE_S)
    producer.begin_transaction()
    send(producer, b"in time")
    producer.commit_transaction(PATIENCE_S)
    assert read(broker, 1) == [b"in time"]


@pytest.mark.parametrize("end", ["restart", "kill"])
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_outlives_the_broker(broker: Any, end: str, commit: bool) -> None:
    producer = begun(broker)
    producer.begin_transaction()
    send(producer, b"before")
    if end == "kill":
        broker.kill()
    broker.restart()
    assert stable_end(broker) == 0
    send(producer, b"after")
    if commit:
        producer.commit_transaction(PATIENCE_S)
    else:
        producer.abort_transaction(PATIENCE_S)
    other = Producer({"bootstrap.servers": broker.bootstrap})
    send(other, b"last")
    assert read(broker, 3 if commit else 1) == ([b"before", b"after", b"last"] if commit else [b"last"])


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_what_was_aborted_stays_aborted_after_a_restart(broker: Any, end: str) -> None:
    producer = begun(broker)
    for number in range(4):
        producer.begin_transaction()
        send(producer, b"%d" % number)
        if number % 2:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
    if end == "kill":
        broker.kill()
    broker.restart()
    assert read(broker, 2) == [b"1", b"3"]
    assert read(broker, 4, isolation="read_uncommitted") == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_offsets_of_an_open_transaction_wait_for_its_end_across_a_restart(broker: Any, end: str) -> None:
    producer = begun(broker)
    group = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "log_level": 0})
    producer.begin_transaction()
    send(producer, b"x")
    producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, 7)], group.consumer_group_metadata(), PATIENCE_S)
    if end == "kill":
        broker.kill()
    broker.restart()
    with pytest.raises(KafkaException) as unstable:
        group.committed([TopicPartition(TOPIC, 0)], 3)
    assert unstable.value.args[0].code() in (KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT)
    producer.commit_transaction(PATIENCE_S)
    assert group.committed([TopicPartition(TOPIC, 0)], PATIENCE_S)[0].offset == 7
    broker.restart()
    assert group.committed([TopicPartition(TOPIC, 0)], PATIENCE_S)[0].offset == 7
    group.close()


def test_a_transactional_id_that_nobody_uses_is_forgotten_and_may_come_back(broker: Any) -> None:
    producer = begun(broker)
    producer.begin_transaction()
    send(producer, b"one")
    producer.commit_transaction(PATIENCE_S)
    broker.clock.advance(days=8)
    again = begun(broker)
    again.begin_transaction()
    send(again, b"two")
    again.commit_transaction(PATIENCE_S)
    assert read(broker, 2) == [b"one", b"two"]


def test_transactions_work_where_every_write_is_synced(broker_factory: Any) -> None:
    """Then no answer of the coordinator is there at once, and appends wait for it in their order."""
    broker = broker_factory({"headrace.flush": "fsync"})
    producer = begun(broker, linger_ms=0)
    for number in range(5):
        producer.begin_transaction()
        for at in range(20):
            producer.produce(TOPIC, b"%d-%d" % (number, at), partition=0)
            producer.poll(0)
        if number % 2:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
    assert read(broker, 60) == [b"%d-%d" % (number, at) for number in (0, 2, 4) for at in range(20)]


def test_a_timeout_that_is_too_long_is_refused(broker: Any) -> None:
    with pytest.raises(KafkaException) as refused:
        begun(broker, transaction_timeout_ms=900_001)
    assert refused.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT
