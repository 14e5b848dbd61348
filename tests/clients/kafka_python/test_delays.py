"""Delayed and scheduled records as kafka-python sends and reads them: by headers alone."""

from collections.abc import Callable, Mapping

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import InvalidRecordError

from tests.clients.kafka_python.conftest import NewConsumer, NewProducer, NewTopic
from tests.clients.kafka_python.reading import read, subscribe
from tests.clients.own_features import (
    CANCEL,
    CANCEL_KEY,
    CRON,
    CRON_ZONE,
    DELAY,
    DELIVER_AT,
    HOUR,
    LEAP_DAYS,
    MOVE,
    REFUSED_DELAYS,
    SCHEDULED_ID,
    due_in_time,
    now_ms,
)
from tests.clients.patience import until
from tests.clients.stories import story

PATIENCE_S = 30
Headers = Mapping[str, bytes]


def sent(
    producer: KafkaProducer, topic: str, value: bytes, headers: Headers, key: bytes | None = None, partition: int = 0
) -> int:
    """The offset that the producer is told, which is the id of a delayed record."""
    future = producer.send(topic, value=value, key=key, headers=list(headers.items()), partition=partition)
    offset: int = future.get(timeout=PATIENCE_S).offset
    return offset


def refused(new_producer: NewProducer, topic: str, headers: Headers) -> None:
    # This client's idempotent producer sends nothing more once a record was refused, so each has one of its own.
    with pytest.raises(InvalidRecordError):
        sent(new_producer(), topic, b"refused", headers)


def whole(new_consumer: NewConsumer, topic: str, **config: object) -> KafkaConsumer:
    consumer, place = new_consumer(**config), TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    return consumer


def read_to_the_end(consumer: KafkaConsumer, topic: str, count: int) -> list[ConsumerRecord]:
    """Exactly `count` records of partition 0, and then the position, the committed offset and the end are the same."""
    records, place = [], TopicPartition(topic, 0)

    def at_the_end() -> bool:
        records.extend(consumer.poll(timeout_ms=100).get(place, ()))
        return len(records) >= count and consumer.position(place) == consumer.end_offsets([place])[place]

    until(f"{count} records and the end are read", at_the_end, pause_s=0)
    assert len(records) == count, values(records)
    consumer.commit()
    assert consumer.committed(place) == consumer.end_offsets([place])[place]
    return records


def values(records: list[ConsumerRecord]) -> list[bytes | None]:
    return [record.value for record in records]


@story("delayed")
def test_delayed_records_come_when_they_are_due_and_a_group_has_no_lag(
    new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic, reader = new_topic(headrace_delay_enable="true"), new_consumer()
    subscribe(reader, [topic])
    producer = new_producer(enable_idempotence=True, compression_type="lz4")
    began = now_ms()
    sent(producer, topic, b"far", {DELAY: HOUR})
    soon = sent(producer, topic, b"soon", {DELAY: b"400", "colour": b"red"}, b"key")
    ended, moment = now_ms(), now_ms() + 500
    dated = sent(producer, topic, b"dated", {DELIVER_AT: b"%d" % moment})
    sent(producer, topic, b"plain", {"colour": b"blue"})
    by_value = {}
    for record in (read(reader, 1)[0] for _ in range(3)):
        by_value[record.value] = record
        if record.value == b"soon":
            due_in_time(record.headers, soon, began + 400, ended + 400)
        if record.value == b"dated":
            due_in_time(record.headers, dated, moment, moment)
    assert set(by_value) == {b"plain", b"soon", b"dated"}
    assert (by_value[b"soon"].key, dict(by_value[b"soon"].headers)["colour"]) == (b"key", b"red")
    assert list(by_value[b"plain"].headers) == [("colour", b"blue")]
    read_to_the_end(reader, topic, 0)
    assert values(read_to_the_end(whole(new_consumer, topic), topic, 3)) == list(by_value)


@story("delayed-transactions")
def test_delayed_records_of_a_transaction_come_after_its_commit_and_never_after_its_abort(
    new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer, unique: Callable[[str], str]
) -> None:
    topic, plain = new_topic(partitions=2, headrace_delay_enable="true"), new_producer()
    producer = new_producer(transactional_id=unique("id"))
    producer.init_transactions()
    hasty = new_consumer(isolation_level="read_uncommitted")
    hasty.assign([TopicPartition(topic, index) for index in range(2)])
    for outcome in (b"kept", b"lost"):
        producer.begin_transaction()
        # When a later one of the other partition has come, this one was due too.
        delayed = sent(producer, topic, outcome, {DELAY: b"300"})
        sent(producer, topic, b"inside", {})
        sent(plain, topic, b"witness", {DELAY: b"400"}, partition=1)
        assert set(values(read(hasty, 2))) == {b"inside", b"witness"}
        if outcome == b"kept":
            producer.commit_transaction()
            assert values(read(hasty, 1)) == [b"kept"]
        else:
            producer.abort_transaction()
            refused(new_producer, topic, {CANCEL: b"%d" % delayed})
    reader = whole(new_consumer, topic, isolation_level="read_committed")
    assert values(read_to_the_end(reader, topic, 2)) == [b"inside", b"kept"]


@story("cancelled")
def test_what_is_cancelled_never_comes_and_what_is_wrong_is_not_stored(
    new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic, producer = new_topic(headrace_delay_enable="true"), new_producer()
    one = sent(producer, topic, b"one", {DELAY: HOUR})
    keyed = [sent(producer, topic, b"keyed", {DELAY: HOUR}, b"k") for _ in range(2)]
    other = sent(producer, topic, b"other", {DELAY: HOUR}, b"another")
    sent(producer, topic, b"", {CANCEL: b"%d" % one})
    sent(producer, topic, b"", {CANCEL_KEY: b"k"})
    reader, place = whole(new_consumer, topic), TopicPartition(topic, 0)
    end = reader.end_offsets([place])
    for gone in (one, *keyed):
        refused(new_producer, topic, {CANCEL: b"%d" % gone})
        refused(new_producer, topic, {MOVE: b"%d" % gone, DELAY: b"0"})
    refused(new_producer, topic, {CANCEL_KEY: b"k"})
    for name, value in REFUSED_DELAYS:
        refused(new_producer, topic, {name: value})
    assert reader.end_offsets([place]) == end
    sent(producer, topic, b"", {MOVE: b"%d" % other, DELAY: b"0"})
    assert values(read_to_the_end(reader, topic, 1)) == [b"other"]


@story("scheduled")
def test_a_schedule_that_is_moved_to_now_comes_and_stays(
    new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic, producer = new_topic(headrace_delay_enable="true"), new_producer()
    report = sent(producer, topic, b"report", {CRON: LEAP_DAYS[0], CRON_ZONE: LEAP_DAYS[1], "colour": b"red"})
    reader = whole(new_consumer, topic)
    for _ in range(2):
        began = now_ms()
        sent(producer, topic, b"", {MOVE: b"%d" % report, DELAY: b"0"})
        [record] = read_to_the_end(reader, topic, 1)
        due_in_time(record.headers, report, began, now_ms())
        assert (record.value, dict(record.headers)["colour"]) == (b"report", b"red")
    once = sent(producer, topic, b"once", {DELAY: HOUR})
    sent(producer, topic, b"", {MOVE: b"%d" % once, DELIVER_AT: b"2001-02-03T04:05:06Z"})
    [record] = read_to_the_end(reader, topic, 1)
    assert dict(record.headers)[SCHEDULED_ID] == b"%d" % once
    refused(new_producer, topic, {CANCEL: b"%d" % once})
    sent(producer, topic, b"", {CANCEL: b"%d" % report})
    refused(new_producer, topic, {CANCEL: b"%d" % report})
