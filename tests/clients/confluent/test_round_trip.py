"""What confluent-kafka produces is what it consumes, to the byte."""

import os
import time

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message

from tests.clients.confluent.conftest import NewConsumer, NewProducer, NewTopicFixture
from tests.clients.confluent.reading import produce, read_partition
from tests.clients.patience import until
from tests.clients.stories import story


@story("round-trip")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"key", b"value"),
        (None, b"no key"),
        (b"no value", None),
        (None, None),
        (b"", b""),
        ("schlüssel".encode(), "värde — 値 🌊".encode()),
        (bytes(range(256)), bytes(reversed(range(256)))),
    ],
    ids=["text", "null-key", "null-value", "both-null", "both-empty", "unicode", "binary"],
)
def test_key_and_value_come_back(
    key: bytes | None,
    value: bytes | None,
    new_topic: NewTopicFixture,
    new_producer: NewProducer,
    new_consumer: NewConsumer,
) -> None:
    topic = new_topic()
    produce(new_producer(), topic, [value], key=key)
    message = read_partition(new_consumer(), topic, 1)[0]
    assert (message.key(), message.value(), message.offset()) == (key, value, 0)


@story("compression")
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_come_back(
    compression: str, new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    values = [b"%d " % number * 50 for number in range(200)]
    produce(new_producer(compression_type=compression, linger_ms=50), topic, values)
    assert [message.value() for message in read_partition(new_consumer(), topic, 200)] == values


@story("headers")
def test_headers_come_back_in_order_with_repeats_and_nulls(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    headers = [("a", b"1"), ("b", None), ("a", b"2"), ("empty", b""), ("ünï", bytes(range(256)))]
    produce(new_producer(), topic, [b"v"], headers=headers)
    assert read_partition(new_consumer(), topic, 1)[0].headers() == headers


@story("timestamps")
def test_producer_timestamps_come_back(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    hour_ago_ms = int(time.time() * 1000) - 3_600_000
    produce(new_producer(), topic, [b"v"], timestamp=hour_ago_ms)
    assert read_partition(new_consumer(), topic, 1)[0].timestamp() == (TIMESTAMP_CREATE_TIME, hour_ago_ms)


@story("log-append-time")
def test_log_append_time_replaces_the_producers_timestamp(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    produce(new_producer(), topic, [b"v"], timestamp=before_ms - 3_600_000)
    kind, stamp_ms = read_partition(new_consumer(), topic, 1)[0].timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before_ms <= stamp_ms <= int(time.time() * 1000)


@story("large-message")
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_900_kb_message_comes_back(
    compression: str, new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    value = os.urandom(900_000)
    produce(new_producer(compression_type=compression), topic, [value])
    assert read_partition(new_consumer(), topic, 1)[0].value() == value


@story("oversize")
def test_message_over_the_topics_limit_is_refused_and_the_next_one_taken(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic(max_message_bytes="1000")
    producer = new_producer()
    errors: list[KafkaError] = []

    def refused(error: KafkaError, _: Message) -> None:
        errors.append(error)

    producer.produce(topic, os.urandom(5000), on_delivery=refused)
    producer.flush(30)
    assert [error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]
    produce(producer, topic, [b"small"])
    assert read_partition(new_consumer(), topic, 1)[0].value() == b"small"


@story("unknown-topic")
def test_topic_that_does_not_exist_is_said_not_to_exist(new_consumer: NewConsumer) -> None:
    topic = "never.created"
    consumer = new_consumer(allow_auto_create_topics=False)
    consumer.subscribe([topic])
    listed = consumer.list_topics(timeout=10)
    assert topic not in listed.topics
    message = until("an error comes", lambda: consumer.poll(1))
    assert message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART
