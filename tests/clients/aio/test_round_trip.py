"""What aiokafka produces is what it consumes, to the byte."""

import os
import time

import pytest
from aiokafka.errors import MessageSizeTooLargeError

from tests.clients.aio.clients import Clients, produce, read_partition
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
async def test_key_and_value_come_back(key: bytes | None, value: bytes | None, clients: Clients) -> None:
    topic = await clients.topic()
    await produce(await clients.producer(), topic, [value], key=key)
    record = (await read_partition(await clients.consumer(), topic, 1))[0]
    assert (record.key, record.value, record.offset) == (key, value, 0)


@story("compression")
@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_compressed_batches_come_back(compression: str | None, clients: Clients) -> None:
    topic = await clients.topic()
    values = [b"%d " % number * 50 for number in range(200)]
    await produce(await clients.producer(compression_type=compression, linger_ms=50), topic, values)
    records = await read_partition(await clients.consumer(), topic, 200)
    assert [record.value for record in records] == values


@story("headers")
async def test_headers_come_back_in_order_with_repeats_and_nulls(clients: Clients) -> None:
    topic = await clients.topic()
    headers = [("a", b"1"), ("b", None), ("a", b"2"), ("empty", b""), ("ünï", bytes(range(256)))]
    await produce(await clients.producer(), topic, [b"v"], headers=headers)
    assert list((await read_partition(await clients.consumer(), topic, 1))[0].headers) == headers


@story("timestamps")
async def test_producer_timestamps_come_back(clients: Clients) -> None:
    topic = await clients.topic()
    hour_ago_ms = int(time.time() * 1000) - 3_600_000
    await produce(await clients.producer(), topic, [b"v"], timestamp_ms=hour_ago_ms)
    record = (await read_partition(await clients.consumer(), topic, 1))[0]
    assert (record.timestamp_type, record.timestamp) == (CREATE_TIME, hour_ago_ms)


@story("log-append-time")
async def test_log_append_time_replaces_the_producers_timestamp(clients: Clients) -> None:
    topic = await clients.topic(message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    told = (await produce(await clients.producer(), topic, [b"v"], timestamp_ms=before_ms - 3_600_000))[0]
    record = (await read_partition(await clients.consumer(), topic, 1))[0]
    assert record.timestamp_type == told.timestamp_type == LOG_APPEND_TIME
    assert before_ms <= record.timestamp <= int(time.time() * 1000)
    assert told.timestamp == record.timestamp


@story("large-message")
@pytest.mark.parametrize("compression", [None, "zstd"])
async def test_900_kb_message_comes_back(compression: str | None, clients: Clients) -> None:
    topic = await clients.topic()
    value = os.urandom(900_000)
    await produce(await clients.producer(compression_type=compression), topic, [value])
    assert (await read_partition(await clients.consumer(), topic, 1))[0].value == value


@story("oversize")
async def test_message_over_the_topics_limit_is_refused_and_the_next_one_taken(clients: Clients) -> None:
    topic = await clients.topic(max_message_bytes="1000")
    producer = await clients.producer()
    with pytest.raises(MessageSizeTooLargeError):
        await producer.send_and_wait(topic, os.urandom(5000))
    await produce(producer, topic, [b"small"])
    assert (await read_partition(await clients.consumer(), topic, 1))[0].value == b"small"


@story("unknown-topic")
async def test_topic_that_does_not_exist_is_said_not_to_exist(clients: Clients) -> None:
    consumer = await clients.consumer()
    assert "never.created" not in await consumer.topics()
    assert consumer.partitions_for_topic("never.created") is None
