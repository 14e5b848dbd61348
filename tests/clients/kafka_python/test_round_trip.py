"""What kafka-python produces is what it consumes, to the byte."""

import os
import time

import pytest
from kafka.errors import MessageSizeTooLargeError

from tests.clients.kafka_python.conftest import NewConsumer, NewProducer, NewTopic
from tests.clients.kafka_python.reading import produce, read_partition
from tests.clients.stories import story

CREATE_TIME, LOG_APPEND_TIME = 0, 1


@story("round-trip")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"key", b"value"),
        (None, b"no key"),
        (b"no value", None),
        (b"", b""),
        ("schlüssel".encode(), "värde — 値 🌊".encode()),
        (bytes(range(256)), bytes(reversed(range(256)))),
    ],
    ids=["text", "null-key", "null-value", "both-empty", "unicode", "binary"],
)
def test_key_and_value_come_back(
    key: bytes | None, value: bytes | None, new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    produce(new_producer(), topic, [value], key=key)
    record = read_partition(new_consumer(), topic, 1)[0]
    assert (record.key, record.value, record.offset) == (key, value, 0)


@story("compression")
@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_come_back(
    compression: str | None, new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    values = [b"%d " % number * 50 for number in range(200)]
    produce(new_producer(compression_type=compression, linger_ms=50), topic, values)
    assert [record.value for record in read_partition(new_consumer(), topic, 200)] == values


@story("headers")
def test_headers_come_back_in_order_with_repeats(
    new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    headers = [("a", b"1"), ("b", b"x"), ("a", b"2"), ("empty", b""), ("ünï", bytes(range(256)))]
    produce(new_producer(), topic, [b"v"], headers=headers)
    assert list(read_partition(new_consumer(), topic, 1)[0].headers) == headers


@story("timestamps")
def test_producer_timestamps_come_back(
    new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    hour_ago_ms = int(time.time() * 1000) - 3_600_000
    produce(new_producer(), topic, [b"v"], timestamp_ms=hour_ago_ms)
    record = read_partition(new_consumer(), topic, 1)[0]
    assert (record.timestamp_type, record.timestamp) == (CREATE_TIME, hour_ago_ms)


@story("log-append-time")
def test_log_append_time_replaces_the_producers_timestamp(
    new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    told = produce(new_producer(), topic, [b"v"], timestamp_ms=before_ms - 3_600_000)[0]
    record = read_partition(new_consumer(), topic, 1)[0]
    assert record.timestamp_type == LOG_APPEND_TIME
    assert before_ms <= record.timestamp <= int(time.time() * 1000)
    assert told.timestamp == record.timestamp


@story("large-message")
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_900_kb_message_comes_back(
    compression: str | None, new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    value = os.urandom(900_000)
    produce(new_producer(compression_type=compression), topic, [value])
    assert read_partition(new_consumer(), topic, 1)[0].value == value


@story("oversize")
def test_message_over_the_topics_limit_is_refused_and_the_next_one_taken(
    new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic(max_message_bytes="1000")
    with pytest.raises(MessageSizeTooLargeError):
        new_producer().send(topic, os.urandom(5000)).get(timeout=30)
    # This client's idempotent producer takes any refusal as the end of its life, so another one goes on.
    produce(new_producer(), topic, [b"small"])
    assert read_partition(new_consumer(), topic, 1)[0].value == b"small"


@story("unknown-topic")
def test_topic_that_does_not_exist_is_said_not_to_exist(new_consumer: NewConsumer) -> None:
    consumer = new_consumer(allow_auto_create_topics=False)
    assert "never.created" not in consumer.topics()
    assert not consumer.partitions_for_topic("never.created")
    assert "never.created" not in consumer.topics()
