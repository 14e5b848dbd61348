"""Views with real clients: records, groups, offsets, lag, transactions, restarts, and what is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPlace

from headrace.testing.local_broker import LocalBroker
from headrace.wire.messages import Message
from tests.raw_client import RawClient

BASE, VIEW = "base", "base.red"
PATIENCE_S = 30
FETCH, DESCRIBE_PRODUCERS = 1, 61


@pytest.fixture
def admin(broker: LocalBroker) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    make(admin, BASE, 2, {"headrace.tags.enable": "true"})
    make(admin, VIEW, -1, {"headrace.view.of": BASE, "headrace.view.tags": "red"})
    return admin


def make(admin: AdminClient, name: str, partitions: int, settings: dict[str, str]) -> None:
    admin.create_topics([NewTopic(name, partitions, -1, config=settings)])[name].result(PATIENCE_S)


def produce(broker: LocalBroker, count: int, tags: list[str], **settings: Any) -> list[tuple[int, bytes]]:
    """Records with these tags by turns, in batches of any codec. Those that are red: partition and value."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
    red = []
    for at in range(count):
        tag, place, value = tags[at % len(tags)], at % 2, b"%d %d" % (at, time.monotonic_ns())
        producer.produce(BASE, value, partition=place, headers=[("headrace.tag", tag.encode())])
        red += [(place, value)] if tag == "red" else []
    assert producer.flush(PATIENCE_S) == 0
    return red


def consumer(broker: LocalBroker, group: str = "g", **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            **settings,
        }
    )


def to_the_end(reader: Consumer, partitions: int = 2) -> list[tuple[int, bytes]]:
    found, ended, until = [], set[int](), time.monotonic() + PATIENCE_S
    while len(ended) < partitions:
        assert time.monotonic() < until, "the end was never reached"
        message = reader.poll(1)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
        else:
            found.append((message.partition(), message.value()))
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_a_group_on_a_view_gets_what_matches_and_reaches_lag_0(
    broker: LocalBroker, admin: AdminClient, codec: str, level: str
) -> None:
    red = produce(broker, 600, ["red", "green", "blue"], **{"compression.type": codec, "linger.ms": 5})
    reader = consumer(broker, **{"isolation.level": level})
    reader.subscribe([VIEW])
    assert sorted(to_the_end(reader)) == sorted(red)
    reader.commit(asynchronous=False)
    places = [TopicPartition(VIEW, at) for at in (0, 1)]
    ends = [reader.get_watermark_offsets(place)[1] for place in places]
    assert [place.offset for place in reader.committed(places)] == ends == [300, 300]
    reader.close()


def test_a_view_without_any_match_lets_its_readers_reach_the_end(broker: LocalBroker, admin: AdminClient) -> None:
    produce(broker, 400, ["green", "blue"])
    reader = consumer(broker)
    reader.subscribe([VIEW])
    assert to_the_end(reader) == []
    assert [place.offset for place in reader.position([TopicPartition(VIEW, at) for at in (0, 1)])] == [200, 200]
    red = produce(broker, 20, ["red"])
    assert sorted(to_the_end(reader)) == sorted(red)
    reader.close()


def test_readers_seek_start_anywhere_and_go_on_where_they_stopped(broker: LocalBroker, admin: AdminClient) -> None:
    red = produce(broker, 600, ["red", "green", "blue"])
    reader = consumer(broker)
    reader.assign([TopicPartition(VIEW, 0, 150)])
    expected = [value for place, value in red if place == 0 and int(value.split()[0]) // 2 >= 150]
    assert [value for _, value in to_the_end(reader, 1)] == expected
    reader.seek(TopicPartition(VIEW, 0, 0))
    assert len(to_the_end(reader, 1)) == 100
    found = reader.offsets_for_times([TopicPartition(VIEW, 0, 0), TopicPartition(VIEW, 1, 2**40)], PATIENCE_S)
    assert found[0].offset == 0
    reader.assign([TopicPartition(VIEW, 0, 1 << 40)])
    reader.close()
    late = consumer(broker, "late", **{"auto.offset.reset": "latest"})
    late.subscribe([VIEW])
    assert to_the_end(late) == []
    red = produce(broker, 30, ["green", "red"])
    assert sorted(to_the_end(late)) == sorted(red)
    late.close()


def test_aborted_records_and_markers_are_not_in_a_view(broker: LocalBroker, admin: AdminClient) -> None:
    writer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t"})
    writer.init_transactions(PATIENCE_S)
    expected = []
    for turn in range(6):
        writer.begin_transaction()
        for at in range(20):
            value = b"%d-%d" % (turn, at)
            writer.produce(BASE, value, partition=0, headers=[("headrace.tag", b"red" if at % 4 == 0 else b"x")])
            expected += [(0, value)] if at % 4 == 0 and turn % 2 == 0 else []
        writer.flush()
        if turn % 2 == 0:
            writer.commit_transaction(PATIENCE_S)
        else:
            writer.abort_transaction(PATIENCE_S)
    reader = consumer(broker, **{"isolation.level": "read_committed"})
    reader.assign([TopicPartition(VIEW, 0, 0)])
    assert to_the_end(reader, 1) == expected
    writer.begin_transaction()
    writer.produce(BASE, b"open", partition=0, headers=[("headrace.tag", b"red")])
    writer.flush()
    assert reader.poll(1.5) is None
    writer.commit_transaction(PATIENCE_S)
    assert [value for _, value in to_the_end(reader, 1)] == [b"open"]
    reader.close()


def test_a_view_outlives_a_restart_and_a_kill(broker: LocalBroker, admin: AdminClient) -> None:
    red = produce(broker, 300, ["red", "green", "blue"])
    for stop in (broker.stop, broker.kill):
        stop()
        broker.start()
        reader = consumer(broker, stop.__name__)
        reader.subscribe([VIEW])
        assert sorted(to_the_end(reader)) == sorted(red)
        reader.close()


def test_aiokafka_reads_a_view(broker: LocalBroker, admin: AdminClient) -> None:
    red = produce(broker, 300, ["red", "green", "blue"], **{"compression.type": "lz4"})

    async def story() -> None:
        reader = AIOKafkaConsumer(
            VIEW, bootstrap_servers=broker.bootstrap, group_id="aio", auto_offset_reset="earliest",
            isolation_level="read_committed",
        )  # fmt: skip
        await reader.start()
        found = []
        while len(found) < len(red):
            for messages in (await reader.getmany(timeout_ms=1000)).values():
                found += [(message.partition, message.value) for message in messages]
        assert sorted(found) == sorted(red)
        places = sorted(reader.assignment())
        while [await reader.position(place) for place in places] != [150, 150]:
            await reader.getmany(timeout_ms=200)
        await reader.commit()
        assert [await reader.committed(place) for place in places] == [150, 150]
        assert await reader.end_offsets(places) == dict.fromkeys(places, 150)
        await reader.stop()

    asyncio.run(asyncio.wait_for(story(), PATIENCE_S))


def test_kafka_python_reads_a_view(broker: LocalBroker, admin: AdminClient) -> None:
    red = produce(broker, 300, ["red", "green", "blue"], **{"compression.type": "gzip"})
    reader = KafkaConsumer(
        VIEW, bootstrap_servers=broker.bootstrap, group_id="kp", auto_offset_reset="earliest", enable_auto_commit=False
    )
    found: list[tuple[int, bytes]] = []
    until = time.monotonic() + PATIENCE_S
    places = [KafkaPlace(VIEW, at) for at in (0, 1)]
    while len(found) < len(red) or [reader.position(place) for place in places] != [150, 150]:
        assert time.monotonic() < until
        for messages in reader.poll(500).values():
            found += [(message.partition, message.value) for message in messages]
    assert sorted(found) == sorted(red)
    reader.commit()
    assert [reader.committed(place) for place in places] == [150, 150]
    reader.close()


def test_more_partitions_of_the_base_are_in_the_view_at_once(broker: LocalBroker, admin: AdminClient) -> None:
    admin.create_partitions([NewPartitions(BASE, 3)])[BASE].result(PATIENCE_S)
    assert len(admin.list_topics(VIEW, timeout=PATIENCE_S).topics[VIEW].partitions) == 3


def test_what_a_view_cannot_do_is_refused(broker: LocalBroker, admin: AdminClient) -> None:
    produce(broker, 10, ["red"])
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(VIEW, b"v", partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE_S)
    assert [error.code() for error in errors] == [KafkaError.TOPIC_EXCEPTION]
    for refused in (
        admin.create_partitions([NewPartitions(VIEW, 9)])[VIEW],
        admin.delete_records([TopicPartition(VIEW, 0, 2)])[TopicPartition(VIEW, 0)],
        admin.delete_topics([BASE])[BASE],
    ):
        with pytest.raises(KafkaException) as error:
            refused.result(PATIENCE_S)
        assert error.value.args[0].code() == KafkaError.INVALID_REQUEST
    settings = admin.describe_configs([ConfigResource("topic", VIEW)])
    told = next(iter(settings.values())).result(PATIENCE_S)
    assert told["headrace.view.tags"].value == "red"
    admin.delete_topics([VIEW])[VIEW].result(PATIENCE_S)
    reader = consumer(broker)
    reader.assign([TopicPartition(BASE, 0, 0)])
    assert len(to_the_end(reader, 1)) == 5
    reader.close()


@pytest.fixture
def wire(broker: LocalBroker, admin: AdminClient) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        yield client


def fetch(wire: RawClient, offset: int, wait_ms: int, min_bytes: int = 1) -> Message:
    asked = Message(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [Message(topic=VIEW, partitions=[asked])]
    body = Message(max_wait_ms=wait_ms, min_bytes=min_bytes, topics=topics, session_id=0, session_epoch=-1)
    found: Message = wire.call(FETCH, 11, body).responses[0].partitions[0]
    return found


def test_a_fetch_that_finds_nothing_waits_and_ends_with_a_marker(broker: LocalBroker, wire: RawClient) -> None:
    produce(broker, 40, ["green"])
    begun = time.monotonic()
    answer = fetch(wire, 0, 300)
    assert time.monotonic() - begun >= 0.3
    assert answer.error_code == 0
    assert 0 < len(answer.records) < 120
    begun = time.monotonic()
    assert not fetch(wire, 20, 300).records
    assert time.monotonic() - begun >= 0.3
    assert fetch(wire, 21, 0).error_code == 1  # OFFSET_OUT_OF_RANGE
    assert fetch(wire, 0, 0).records


def test_a_damaged_partition_of_a_view_is_an_error_of_that_partition(broker: LocalBroker, wire: RawClient) -> None:
    produce(broker, 40, ["red"])
    (log,) = (broker.data / f"{BASE}-0").glob("*.log")
    with log.open("r+b") as file:
        file.seek(16)
        file.write(b"\x09")
    assert fetch(wire, 0, 0).error_code == 56  # KAFKA_STORAGE_ERROR
    asked = Message(partition=1, fetch_offset=0, partition_max_bytes=1 << 20)
    body = Message(min_bytes=1, topics=[Message(topic=VIEW, partitions=[asked])], session_id=0, session_epoch=-1)
    other = wire.call(FETCH, 11, body).responses[0].partitions[0]
    assert other.error_code == 0
    assert other.records


def test_a_view_has_no_producers_so_tools_that_ask_all_topics_get_on(broker: LocalBroker, wire: RawClient) -> None:
    produce(broker, 40, ["red"], **{"enable.idempotence": True})
    topics = [Message(name=name, partition_indexes=[0]) for name in (BASE, VIEW)]
    answers = [topic.partitions[0] for topic in wire.call(DESCRIBE_PRODUCERS, 0, Message(topics=topics)).topics]
    assert [(answer.error_code, len(answer.active_producers)) for answer in answers] == [(0, 1), (0, 0)]
    topics = [Message(name=VIEW, partition_indexes=[7])]
    (unknown,) = wire.call(DESCRIBE_PRODUCERS, 0, Message(topics=topics)).topics[0].partitions
    assert unknown.error_code == 3  # UNKNOWN_TOPIC_OR_PARTITION
