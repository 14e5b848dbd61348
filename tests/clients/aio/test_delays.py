"""Delayed and scheduled records as aiokafka sends and reads them: by headers alone."""

from collections.abc import Mapping

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import UnknownError
from aiokafka.structs import ConsumerRecord

from tests.clients.aio.clients import Clients, read, until
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
from tests.clients.stories import story

Headers = Mapping[str, bytes]


async def sent(
    producer: AIOKafkaProducer,
    topic: str,
    value: bytes,
    headers: Headers,
    key: bytes | None = None,
    partition: int = 0,
) -> int:
    """The offset that the producer is told, which is the id of a delayed record."""
    given = list(headers.items())
    offset: int = (await producer.send_and_wait(topic, value, key, partition, headers=given)).offset
    return offset


async def refused(producer: AIOKafkaProducer, topic: str, headers: Headers) -> None:
    # INVALID_RECORD is younger than this client's table of errors.
    with pytest.raises(UnknownError):
        await sent(producer, topic, b"refused", headers)


async def whole(clients: Clients, topic: str, **config: str) -> AIOKafkaConsumer:
    consumer = await clients.consumer(**config)
    consumer.assign([TopicPartition(topic, 0)])
    return consumer


async def read_to_the_end(consumer: AIOKafkaConsumer, topic: str, count: int) -> list[ConsumerRecord]:
    """Exactly `count` records of partition 0, and then the position, the committed offset and the end are the same."""
    records: list[ConsumerRecord] = []
    place = TopicPartition(topic, 0)

    async def at_the_end() -> bool:
        for batch in (await consumer.getmany(timeout_ms=100)).values():
            records.extend(batch)
        end = (await consumer.end_offsets([place]))[place]
        return len(records) >= count and await consumer.position(place) == end

    await until(f"{count} records and the end are read", at_the_end)
    assert len(records) == count, values(records)
    await consumer.commit()
    assert await consumer.committed(place) == (await consumer.end_offsets([place]))[place]
    return records


def values(records: list[ConsumerRecord]) -> list[bytes | None]:
    return [record.value for record in records]


@story("delayed")
async def test_delayed_records_come_when_they_are_due_and_a_group_has_no_lag(clients: Clients) -> None:
    topic = await clients.topic(headrace_delay_enable="true")
    reader, producer = (
        await clients.consumer(topic),
        await clients.producer(enable_idempotence=True, compression_type="gzip"),
    )
    began = now_ms()
    await sent(producer, topic, b"far", {DELAY: HOUR})
    soon = await sent(producer, topic, b"soon", {DELAY: b"400", "colour": b"red"}, b"key")
    ended, moment = now_ms(), now_ms() + 500
    dated = await sent(producer, topic, b"dated", {DELIVER_AT: b"%d" % moment})
    await sent(producer, topic, b"plain", {"colour": b"blue"})
    by_value = {}
    for _ in range(3):
        [record] = await read(reader, 1)
        by_value[record.value] = record
        if record.value == b"soon":
            due_in_time(record.headers, soon, began + 400, ended + 400)
        if record.value == b"dated":
            due_in_time(record.headers, dated, moment, moment)
    assert set(by_value) == {b"plain", b"soon", b"dated"}
    assert (by_value[b"soon"].key, dict(by_value[b"soon"].headers)["colour"]) == (b"key", b"red")
    assert by_value[b"plain"].headers == (("colour", b"blue"),)
    await read_to_the_end(reader, topic, 0)
    assert values(await read_to_the_end(await whole(clients, topic), topic, 3)) == list(by_value)


@story("delayed-transactions")
async def test_delayed_records_of_a_transaction_come_after_its_commit_and_never_after_its_abort(
    clients: Clients,
) -> None:
    topic, plain = await clients.topic(partitions=2, headrace_delay_enable="true"), await clients.producer()
    producer = await clients.producer(transactional_id=clients.unique("id"))
    hasty = await clients.consumer(isolation_level="read_uncommitted")
    hasty.assign([TopicPartition(topic, index) for index in range(2)])
    for outcome in (b"kept", b"lost"):
        await producer.begin_transaction()
        # When a later one of the other partition has come, this one was due too.
        delayed = await sent(producer, topic, outcome, {DELAY: b"300"})
        await sent(producer, topic, b"inside", {})
        await sent(plain, topic, b"witness", {DELAY: b"400"}, partition=1)
        assert set(values(await read(hasty, 2))) == {b"inside", b"witness"}
        if outcome == b"kept":
            await producer.commit_transaction()
            assert values(await read(hasty, 1)) == [b"kept"]
        else:
            await producer.abort_transaction()
            await refused(plain, topic, {CANCEL: b"%d" % delayed})
    reader = await whole(clients, topic, isolation_level="read_committed")
    assert values(await read_to_the_end(reader, topic, 2)) == [b"inside", b"kept"]


@story("cancelled")
async def test_what_is_cancelled_never_comes_and_what_is_wrong_is_not_stored(clients: Clients) -> None:
    topic, producer = await clients.topic(headrace_delay_enable="true"), await clients.producer()
    one = await sent(producer, topic, b"one", {DELAY: HOUR})
    keyed = [await sent(producer, topic, b"keyed", {DELAY: HOUR}, b"k") for _ in range(2)]
    other = await sent(producer, topic, b"other", {DELAY: HOUR}, b"another")
    await sent(producer, topic, b"", {CANCEL: b"%d" % one})
    await sent(producer, topic, b"", {CANCEL_KEY: b"k"})
    reader, place = await whole(clients, topic), TopicPartition(topic, 0)
    end = await reader.end_offsets([place])
    for gone in (one, *keyed):
        await refused(producer, topic, {CANCEL: b"%d" % gone})
        await refused(producer, topic, {MOVE: b"%d" % gone, DELAY: b"0"})
    await refused(producer, topic, {CANCEL_KEY: b"k"})
    for name, value in REFUSED_DELAYS:
        await refused(producer, topic, {name: value})
    assert await reader.end_offsets([place]) == end
    await sent(producer, topic, b"", {MOVE: b"%d" % other, DELAY: b"0"})
    assert values(await read_to_the_end(reader, topic, 1)) == [b"other"]


@story("scheduled")
async def test_a_schedule_that_is_moved_to_now_comes_and_stays(clients: Clients) -> None:
    topic, producer = await clients.topic(headrace_delay_enable="true"), await clients.producer()
    wish = {CRON: LEAP_DAYS[0], CRON_ZONE: LEAP_DAYS[1], "colour": b"red"}
    report = await sent(producer, topic, b"report", wish)
    reader = await whole(clients, topic)
    for _ in range(2):
        began = now_ms()
        await sent(producer, topic, b"", {MOVE: b"%d" % report, DELAY: b"0"})
        [record] = await read_to_the_end(reader, topic, 1)
        due_in_time(record.headers, report, began, now_ms())
        assert (record.value, dict(record.headers)["colour"]) == (b"report", b"red")
    once = await sent(producer, topic, b"once", {DELAY: HOUR})
    await sent(producer, topic, b"", {MOVE: b"%d" % once, DELIVER_AT: b"2001-02-03T04:05:06Z"})
    [record] = await read_to_the_end(reader, topic, 1)
    assert dict(record.headers)[SCHEDULED_ID] == b"%d" % once
    await refused(producer, topic, {CANCEL: b"%d" % once})
    await sent(producer, topic, b"", {CANCEL: b"%d" % report})
    await refused(producer, topic, {CANCEL: b"%d" % report})
