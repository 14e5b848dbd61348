"""A view of what is pending, with real clients: what is in it, where it ends, and what it does not do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPlace

from headrace.testing.local_broker import LocalBroker
from headrace.wire.messages import Message as Answer
from tests.clients.patience import until
from tests.raw_client import RawClient

BASE, VIEW = "base", "base.waiting"
PATIENCE_S = 30
FETCH, LIST_OFFSETS = 1, 2
Sent = dict[int, bytes]  # by id


@pytest.fixture
def admin(broker: LocalBroker) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    make(admin, BASE, {"headrace.delay.enable": "true", "retention.ms": "60000", "segment.bytes": "100000"}, 1)
    make(admin, VIEW, {"headrace.view.of": BASE, "headrace.view.pending": "true"})
    return admin


def make(admin: AdminClient, name: str, settings: dict[str, str], partitions: int = -1) -> None:
    admin.create_topics([NewTopic(name, partitions, -1, config=settings)])[name].result(PATIENCE_S)


def produce(broker: LocalBroker, count: int, delay_ms: int = 3_600_000, **settings: Any) -> Sent:
    """Delayed records, with others between them."""
    producer, sent = Producer({"bootstrap.servers": broker.bootstrap, **settings}), Sent()
    headers = {"headrace.delay-ms": str(delay_ms), "mine": "1"}
    for at in range(count):
        value = b"%d %d" % (at, time.monotonic_ns())
        producer.produce(
            BASE, value, key=b"k%d" % at, headers=headers, on_delivery=lambda _, told: sent.update([_place(told)])
        )
        if at % 3 == 0:
            producer.produce(BASE, b"at once")
    assert producer.flush(PATIENCE_S) == 0
    return sent


def _place(told: Message) -> tuple[int, bytes]:
    return told.offset() or 0, bytes(told.value() or b"")


def consumer(broker: LocalBroker, group: str = "g", **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
            **settings,
        }
    )


def to_the_end(reader: Consumer) -> list[Message]:
    found, limit_s = list[Message](), time.monotonic() + PATIENCE_S
    while time.monotonic() < limit_s:
        message = reader.poll(1)
        error = None if message is None else message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            return found
        if message is not None:
            found.append(message)
    raise AssertionError("the end was never reached")


def listed(broker: LocalBroker, **settings: Any) -> Sent:
    """What a new reader finds in the view, in its order."""
    reader = consumer(broker, **settings)
    reader.assign([TopicPartition(VIEW, 0, 0)])
    found = dict(map(_place, to_the_end(reader)))
    reader.close()
    assert list(found) == sorted(found)
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_group_reads_what_waits_to_its_end(broker: LocalBroker, admin: AdminClient, codec: str) -> None:
    now_ms = broker.clock.now_ms()
    sent = produce(broker, 500, **{"compression.type": codec, "linger.ms": 5})
    reader = consumer(broker)
    reader.subscribe([VIEW])
    found = to_the_end(reader)
    assert [_place(message) for message in found] == sorted(sent.items())
    assert found[0].key() == b"k0"
    headers = found[0].headers()
    assert headers[:2] == [("headrace.delay-ms", b"3600000"), ("mine", b"1")]
    assert headers[2][0] == "headrace.scheduled.for"
    assert 3_600_000 <= int(headers[2][1]) - now_ms < 3_600_000 + 60_000
    assert len(headers) == 3
    reader.commit(asynchronous=False)
    place = TopicPartition(VIEW, 0)
    low, high = reader.get_watermark_offsets(place)
    assert low == 0
    assert [each.offset for each in reader.committed([place])] == [high]
    more = produce(broker, 2)
    assert dict(map(_place, to_the_end(reader))) == more
    reader.close()


def test_what_was_delivered_cancelled_and_moved_is_as_it_is_now(broker: LocalBroker, admin: AdminClient) -> None:
    soon, late = produce(broker, 10, 60_000), produce(broker, 10)
    assert listed(broker) == soon | late
    broker.clock.advance(minutes=2)
    until("the release", lambda: listed(broker) == late)
    gone, moved, *_ = late
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(BASE, b"", headers={"headrace.cancel": str(gone)})
    producer.flush(PATIENCE_S)
    at_ms = str(broker.clock.now_ms() + 86_400_000)
    producer.produce(BASE, b"", headers={"headrace.move": str(moved), "headrace.deliver-at": at_ms})
    producer.flush(PATIENCE_S)
    assert listed(broker) == {key: value for key, value in late.items() if key != gone}
    reader = consumer(broker)
    reader.assign([TopicPartition(VIEW, 0, moved)])
    first = to_the_end(reader)[0]
    assert first.offset() == moved
    assert dict(first.headers())["headrace.scheduled.for"] == at_ms.encode()
    reader.close()


def test_what_a_transaction_holds_is_not_listed_before_its_commit(broker: LocalBroker, admin: AdminClient) -> None:
    writer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t"})
    writer.init_transactions(PATIENCE_S)
    expected = set[bytes]()
    for value, committed in ((b"a", True), (b"b", False), (b"c", True)):
        writer.begin_transaction()
        writer.produce(BASE, value, headers={"headrace.delay-ms": "3600000"})
        writer.flush()
        later = produce(broker, 1)
        expected |= set(later.values())
        assert set(listed(broker).values()) == expected
        assert not set(listed(broker, **{"isolation.level": "read_committed"}).values()) & set(later.values())
        if committed:
            writer.commit_transaction(PATIENCE_S)
            expected.add(value)
        else:
            writer.abort_transaction(PATIENCE_S)
        for level in ("read_committed", "read_uncommitted"):
            assert set(listed(broker, **{"isolation.level": level}).values()) == expected


def test_an_empty_view_has_an_end(broker: LocalBroker, admin: AdminClient) -> None:
    assert listed(broker) == {}
    produce(broker, 50, 0)
    assert listed(broker) == {}


def test_it_outlives_restarts_and_kills(broker: LocalBroker, admin: AdminClient) -> None:
    sent = produce(broker, 100)
    for stop in (broker.stop, broker.kill):
        stop()
        broker.start()
        assert listed(broker) == sent


def test_what_retention_has_passed_is_listed_at_its_id(broker: LocalBroker, admin: AdminClient) -> None:
    sent = produce(broker, 100, 10 * 86_400_000)
    before = listed(broker)

    def passed() -> bool:
        produce(broker, 30, 0, **{"batch.num.messages": 1})
        broker.clock.advance(minutes=2)
        base = consumer(broker)
        low, _ = base.get_watermark_offsets(TopicPartition(BASE, 0), PATIENCE_S)
        base.close()
        return bool(low > max(sent))

    until("the start of the log behind all ids", passed, PATIENCE_S)
    assert listed(broker) == before == sent
    reader = consumer(broker, "new")
    reader.subscribe([VIEW])
    assert dict(map(_place, to_the_end(reader))) == sent
    reader.close()


def test_deleting_records_of_the_base_takes_them_out(broker: LocalBroker, admin: AdminClient) -> None:
    sent = produce(broker, 20)
    middle = sorted(sent)[10]
    place = TopicPartition(BASE, 0, middle)
    admin.delete_records([place])[TopicPartition(BASE, 0)].result(PATIENCE_S)
    assert listed(broker) == {key: value for key, value in sent.items() if key >= middle}


def test_a_large_record_goes_out_alone(broker: LocalBroker, admin: AdminClient) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for size in (900_000, 10, 700_000, 10):
        producer.produce(BASE, b"x" * size, headers={"headrace.delay-ms": "3600000"})
    producer.flush(PATIENCE_S)
    small = listed(broker, **{"max.partition.fetch.bytes": 1000, "fetch.max.bytes": 1000, "message.max.bytes": 1000})
    assert [len(value) for value in small.values()] == [900_000, 10, 700_000, 10]


def test_aiokafka_reads_it_to_the_end(broker: LocalBroker, admin: AdminClient) -> None:
    sent = produce(broker, 200)

    async def story() -> None:
        reader = AIOKafkaConsumer(
            VIEW, bootstrap_servers=broker.bootstrap, group_id="aio", auto_offset_reset="earliest",
            isolation_level="read_committed",
        )  # fmt: skip
        await reader.start()
        (place,) = await _assigned(reader)
        end = (await reader.end_offsets([place]))[place]
        found = []
        while await reader.position(place) < end:
            for messages in (await reader.getmany(timeout_ms=500)).values():
                found += [(message.offset, message.value) for message in messages]
        assert found == sorted(sent.items())
        await reader.commit()
        assert await reader.committed(place) == end
        await reader.stop()

    asyncio.run(asyncio.wait_for(story(), PATIENCE_S))


async def _assigned(reader: AIOKafkaConsumer) -> list[Any]:
    while not reader.assignment():
        await asyncio.sleep(0.05)
    return list(reader.assignment())


def test_kafka_python_reads_it_to_the_end(broker: LocalBroker, admin: AdminClient) -> None:
    sent = produce(broker, 200)
    reader = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, group_id="kp", auto_offset_reset="earliest", enable_auto_commit=False
    )
    place, limit_s = KafkaPlace(VIEW, 0), time.monotonic() + PATIENCE_S
    reader.assign([place])
    end, found = reader.end_offsets([place])[place], list[tuple[int, bytes]]()
    while reader.position(place) < end:
        assert time.monotonic() < limit_s
        for messages in reader.poll(500).values():
            found += [(message.offset, message.value) for message in messages]
    assert found == sorted(sent.items())
    reader.commit()
    assert reader.committed(place) == end
    assert reader.offsets_for_times({place: 0})[place] is None  # its records are not in the order of times
    reader.close()


def test_what_it_cannot_do_is_refused(broker: LocalBroker, admin: AdminClient) -> None:
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(VIEW, b"v", partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE_S)
    assert [error.code() for error in errors] == [KafkaError.TOPIC_EXCEPTION]
    for refused in (
        admin.delete_records([TopicPartition(VIEW, 0, 2)])[TopicPartition(VIEW, 0)],
        admin.delete_topics([BASE])[BASE],
    ):
        with pytest.raises(KafkaException) as error:
            refused.result(PATIENCE_S)
        assert error.value.args[0].code() == KafkaError.INVALID_REQUEST
    sent = produce(broker, 3)
    admin.delete_topics([VIEW])[VIEW].result(PATIENCE_S)
    make(admin, VIEW, {"headrace.view.of": BASE, "headrace.view.pending": "true"})
    until("the view, made anew", lambda: listed(broker) == sent)


@pytest.fixture
def wire(broker: LocalBroker, admin: AdminClient) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        yield client


def fetch(wire: RawClient, offset: int, wait_ms: int) -> Answer:
    asked = Answer(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [Answer(topic=VIEW, partitions=[asked])]
    body = Answer(max_wait_ms=wait_ms, min_bytes=1, topics=topics, session_id=0, session_epoch=-1)
    found: Answer = wire.call(FETCH, 11, body).responses[0].partitions[0]
    return found


def test_a_fetch_that_finds_nothing_waits_and_ends_with_a_marker(broker: LocalBroker, wire: RawClient) -> None:
    produce(broker, 30, 0)
    begun = time.monotonic()
    answer = fetch(wire, 0, 300)
    assert time.monotonic() - begun >= 0.3
    assert (answer.error_code, answer.log_start_offset) == (0, 0)
    assert 0 < len(answer.records) < 120
    assert not fetch(wire, answer.high_watermark, 0).records
    assert fetch(wire, answer.high_watermark + 1, 0).error_code == 1  # OFFSET_OUT_OF_RANGE


def test_it_starts_at_0_and_has_no_times(broker: LocalBroker, wire: RawClient) -> None:
    produce(broker, 3)

    def offset_for(when: int) -> tuple[int, int]:
        topics = [Answer(name=VIEW, partitions=[Answer(partition_index=0, timestamp=when)])]
        answer = wire.call(LIST_OFFSETS, 7, Answer(replica_id=-1, topics=topics)).topics[0].partitions[0]
        return answer.error_code, answer.offset

    assert offset_for(-2) == (0, 0)
    assert offset_for(-1)[0] == 0
    assert offset_for(-1)[1] > 3
    for when in (0, broker.clock.now_ms(), -3):
        assert offset_for(when) == (43, -1)  # UNSUPPORTED_FOR_MESSAGE_FORMAT
