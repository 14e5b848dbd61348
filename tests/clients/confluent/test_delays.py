"""Delayed and scheduled records as confluent-kafka sends and reads them: by headers alone."""

from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.clients.confluent.conftest import NewConsumer, NewProducer, NewTopicFixture
from tests.clients.confluent.reading import read
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
    producer: Producer, topic: str, value: bytes, headers: Headers, key: bytes | None = None, partition: int = 0
) -> int:
    """The offset that the producer is told, which is the id of a delayed record. KafkaException if it is refused."""
    told: list[KafkaError | int | None] = []
    producer.produce(
        topic,
        value,
        key,
        partition,
        headers=dict(headers),
        on_delivery=lambda error, at: told.append(error or at.offset()),
    )
    assert producer.flush(PATIENCE_S) == 0
    if isinstance(told[0], KafkaError):
        raise KafkaException(told[0])
    assert told[0] is not None
    return told[0]


def refused(producer: Producer, topic: str, headers: Headers) -> None:
    with pytest.raises(KafkaException) as error:
        sent(producer, topic, b"refused", headers)
    assert error.value.args[0].code() == KafkaError.INVALID_RECORD


def read_to_the_end(consumer: Consumer, topic: str, count: int) -> list[Message]:
    """Exactly `count` messages of partition 0, and then the position, the committed offset and the end are the same."""
    messages, place = [], TopicPartition(topic, 0)

    def at_the_end() -> bool:
        for message in consumer.consume(count, 0.1):
            assert message.error() is None, message.error()
            messages.append(message)
        end = consumer.get_watermark_offsets(place, 10)[1]
        return len(messages) >= count and consumer.position([place])[0].offset == end

    until(f"{count} messages and the end are read", at_the_end)
    assert len(messages) == count, [message.value() for message in messages]
    consumer.commit(asynchronous=False)
    assert consumer.committed([place], 10)[0].offset == consumer.get_watermark_offsets(place, 10)[1]
    return messages


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


@story("delayed")
def test_delayed_records_come_when_they_are_due_and_a_group_has_no_lag(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic, reader = new_topic(headrace_delay_enable="true"), new_consumer()
    reader.subscribe([topic])
    producer = new_producer(enable_idempotence=True, compression_type="lz4")
    began = now_ms()
    sent(producer, topic, b"far", {DELAY: HOUR})
    soon = sent(producer, topic, b"soon", {DELAY: b"400", "colour": b"red"}, b"key")
    ended, moment = now_ms(), now_ms() + 500
    dated = sent(producer, topic, b"dated", {DELIVER_AT: b"%d" % moment})
    sent(producer, topic, b"plain", {"colour": b"blue"})
    by_value = {}
    for message in (read(reader, 1)[0] for _ in range(3)):
        by_value[message.value()] = message
        if message.value() == b"soon":
            due_in_time(message.headers(), soon, began + 400, ended + 400)
        if message.value() == b"dated":
            due_in_time(message.headers(), dated, moment, moment)
    assert set(by_value) == {b"plain", b"soon", b"dated"}
    assert (by_value[b"soon"].key(), dict(by_value[b"soon"].headers())["colour"]) == (b"key", b"red")
    assert by_value[b"plain"].headers() == [("colour", b"blue")]
    read_to_the_end(reader, topic, 0)
    assert values(read_to_the_end(whole(new_consumer, topic), topic, 3)) == list(by_value)


def whole(new_consumer: NewConsumer, topic: str, **config: object) -> Consumer:
    consumer = new_consumer(**config)
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


@story("delayed")
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_of_large_batches_every_record_comes_once_under_the_id_that_the_producer_was_told(
    codec: str, new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic, began, count = new_topic(headrace_delay_enable="true"), now_ms(), 1000
    producer = new_producer(enable_idempotence=True, compression_type=codec, linger_ms=50)
    told: dict[bytes, int] = {}
    for number in range(count):
        wish = [(DELAY, b"%d" % (number % 500))] if number % 3 else []
        producer.produce(
            topic,
            b"%d" % number,
            headers=wish,
            partition=0,
            on_delivery=lambda _, at: told.update({at.value(): at.offset()}),
        )
    assert producer.flush(PATIENCE_S) == 0
    messages = read_to_the_end(whole(new_consumer, topic), topic, count)
    assert sorted(values(messages)) == sorted(b"%d" % number for number in range(count))
    for message in messages:
        if int(message.value()) % 3:
            due_in_time(message.headers(), told[message.value()], began, now_ms())
        else:
            assert message.offset() == told[message.value()]


@story("delayed-transactions")
def test_delayed_records_of_a_transaction_come_after_its_commit_and_never_after_its_abort(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer, unique: Callable[[str], str]
) -> None:
    topic, plain = new_topic(partitions=2, headrace_delay_enable="true"), new_producer()
    producer = new_producer(transactional_id=unique("id"))
    producer.init_transactions(PATIENCE_S)
    hasty = new_consumer(isolation_level="read_uncommitted")
    hasty.assign([TopicPartition(topic, index, 0) for index in range(2)])
    for outcome in (b"kept", b"lost"):
        producer.begin_transaction()
        # When a later one of the other partition has come, this one was due too.
        delayed = sent(producer, topic, outcome, {DELAY: b"300"})
        sent(producer, topic, b"inside", {})
        sent(plain, topic, b"witness", {DELAY: b"400"}, partition=1)
        assert set(values(read(hasty, 2))) == {b"inside", b"witness"}
        if outcome == b"kept":
            producer.commit_transaction(PATIENCE_S)
            assert values(read(hasty, 1)) == [b"kept"]
        else:
            producer.abort_transaction(PATIENCE_S)
            refused(plain, topic, {CANCEL: b"%d" % delayed})
    reader = whole(new_consumer, topic, isolation_level="read_committed")
    assert values(read_to_the_end(reader, topic, 2)) == [b"inside", b"kept"]


@story("cancelled")
@pytest.mark.parametrize("idempotent", [False, True])
def test_what_is_cancelled_never_comes_and_what_is_wrong_is_not_stored(
    idempotent: bool, new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic(headrace_delay_enable="true")
    producer = new_producer(enable_idempotence=idempotent)
    one = sent(producer, topic, b"one", {DELAY: HOUR})
    keyed = [sent(producer, topic, b"keyed", {DELAY: HOUR}, b"k") for _ in range(2)]
    other = sent(producer, topic, b"other", {DELAY: HOUR}, b"another")
    sent(producer, topic, b"", {CANCEL: b"%d" % one})
    sent(producer, topic, b"", {CANCEL_KEY: b"k"})
    reader = whole(new_consumer, topic)
    end = reader.get_watermark_offsets(TopicPartition(topic, 0), 10)[1]
    for gone in (one, *keyed):
        refused(producer, topic, {CANCEL: b"%d" % gone})
        refused(producer, topic, {MOVE: b"%d" % gone, DELAY: b"0"})
    refused(producer, topic, {CANCEL_KEY: b"k"})
    for name, value in REFUSED_DELAYS:
        refused(producer, topic, {name: value})
    assert reader.get_watermark_offsets(TopicPartition(topic, 0), 10)[1] == end
    sent(producer, topic, b"", {MOVE: b"%d" % other, DELAY: b"0"})
    assert values(read_to_the_end(reader, topic, 1)) == [b"other"]


@story("scheduled")
def test_a_schedule_that_is_moved_to_now_comes_and_stays(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic, producer = new_topic(headrace_delay_enable="true"), new_producer()
    report = sent(producer, topic, b"report", {CRON: LEAP_DAYS[0], CRON_ZONE: LEAP_DAYS[1], "colour": b"red"})
    reader = whole(new_consumer, topic)
    for _ in range(2):
        began = now_ms()
        sent(producer, topic, b"", {MOVE: b"%d" % report, DELAY: b"0"})
        [message] = read_to_the_end(reader, topic, 1)
        due_in_time(message.headers(), report, began, now_ms())
        assert (message.value(), dict(message.headers())["colour"]) == (b"report", b"red")
    once = sent(producer, topic, b"once", {DELAY: HOUR})
    sent(producer, topic, b"", {MOVE: b"%d" % once, DELIVER_AT: b"2001-02-03T04:05:06Z"})
    [message] = read_to_the_end(reader, topic, 1)
    assert dict(message.headers())[SCHEDULED_ID] == b"%d" % once
    refused(producer, topic, {CANCEL: b"%d" % once})
    sent(producer, topic, b"", {CANCEL: b"%d" % report})
    refused(producer, topic, {CANCEL: b"%d" % report})
