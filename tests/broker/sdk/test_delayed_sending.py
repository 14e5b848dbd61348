"""Delayed messages sent by the SDK: they come when they are due, once and not before, unless they are cancelled."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from headrace import AsyncProducer, AsyncSchedules, Message, Producer, Record, Schedules
from headrace.sdk import NotPending
from headrace.sdk.codecs import codec_of
from headrace.sdk.received import message_of
from headrace.testing.local_broker import LocalBroker
from tests.clients.patience import until

from .topics import create_topic

LATER = timedelta(minutes=10)


def values(messages: Iterable[Message]) -> list[str]:
    return [message.text for message in messages]


class Reader:
    """Reads partitions without a group: a member would be thought dead when the clock is advanced."""

    def __init__(self, broker: LocalBroker, partitions: int = 1) -> None:
        self._broker = broker
        self._consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader"})
        self._consumer.assign([TopicPartition("reminders", number, OFFSET_BEGINNING) for number in range(partitions)])

    def close(self) -> None:
        self._consumer.close()

    def read(self, count: int) -> list[Message]:
        """The next messages; fails if there are not so many."""
        found: list[Message] = []

        def read_on() -> bool:
            for inner in self._consumer.consume(count - len(found), 0.2):
                assert inner.error() is None, inner.error()
                found.append(message_of(inner, codec_of("bytes")))
            return len(found) >= count

        until(f"{count} messages", read_on)
        return found

    def until_now(self, sentinel: str) -> list[str]:
        """The values that came before a message that is sent now to partition 0, which the test calls by this name."""
        with Producer(self._broker.bootstrap) as producer:
            producer.send_and_wait("reminders", sentinel, partition=0)
        found: list[str] = []
        while sentinel not in found:
            found += values(self.read(1))
        return found[:-1]


@pytest.fixture
def reminders(broker: LocalBroker) -> Any:
    """A reader of a topic that keeps messages back."""
    create_topic(broker, "reminders", settings={"headrace.delay.enable": "true"})
    reader = Reader(broker)
    yield reader
    reader.close()


def test_a_message_comes_when_its_delay_is_over_and_not_before(broker: LocalBroker, reminders: Reader) -> None:
    with Producer(broker.bootstrap) as producer:
        receipt = producer.send_and_wait("reminders", "tea", key="alice", headers=[("a", b"1")], delay=LATER)
        before = reminders.until_now("first")
        broker.clock.advance(minutes=9, seconds=50)
        before += reminders.until_now("second")
        broker.clock.advance(seconds=20)
    (message,) = reminders.read(1)
    assert before == []
    assert (message.text, message.key_text, message.header("a")) == ("tea", "alice", b"1")
    assert message.header("headrace.scheduled.id") == str(receipt.offset).encode()
    assert message.header("headrace.scheduled.for") is not None
    assert message.header("headrace.delay-ms") is None
    assert message.offset > receipt.offset
    broker.clock.advance(days=1)
    assert reminders.until_now("third") == []


def test_messages_come_in_the_order_of_their_times(broker: LocalBroker, reminders: Reader) -> None:
    now = datetime.now(UTC)
    with Producer(broker.bootstrap) as producer:
        producer.send("reminders", "third", delay=timedelta(minutes=30))
        producer.send("reminders", "first", deliver_at=now + timedelta(minutes=10))
        producer.send_record(Record("second", topic="reminders", deliver_at=now + timedelta(minutes=20)))
        producer.flush()
    broker.clock.advance(hours=1)
    assert values(reminders.read(3)) == ["first", "second", "third"]


def test_a_time_in_the_past_is_now(broker: LocalBroker, reminders: Reader) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send("reminders", "overdue", deliver_at=datetime(2020, 1, 1, tzinfo=UTC))
        producer.send("reminders", "at once", delay=timedelta(0))
    assert sorted(values(reminders.read(2))) == ["at once", "overdue"]


def test_a_recurring_message_comes_every_hour_until_it_is_cancelled(broker: LocalBroker, reminders: Reader) -> None:
    with Producer(broker.bootstrap) as producer:
        receipt = producer.send_and_wait("reminders", "report", cron="0 * * * *", cron_tz="Europe/Berlin")
    due = []
    for _ in range(3):
        broker.clock.advance(hours=1)
        (message,) = reminders.read(1)
        assert message.header("headrace.scheduled.id") == str(receipt.offset).encode()
        due.append(int(message.header("headrace.scheduled.for") or 0))
    assert [later - earlier for earlier, later in pairwise(due)] == [3_600_000] * 2
    assert due[0] % 3_600_000 == 0
    with Schedules(broker.bootstrap) as schedules:
        schedules.cancel("reminders", receipt.partition, receipt.offset)
    broker.clock.advance(hours=3)
    assert reminders.until_now("end") == []


def test_what_is_cancelled_never_comes_and_cannot_be_cancelled_again(broker: LocalBroker, reminders: Reader) -> None:
    with Producer(broker.bootstrap) as producer, Schedules(broker.bootstrap) as schedules:
        tea = producer.send_and_wait("reminders", "tea", delay=LATER)
        cake = producer.send_and_wait("reminders", "cake", delay=LATER)
        schedules.cancel("reminders", tea.partition, tea.offset)
        with pytest.raises(NotPending, match=f"topic reminders partition 0 has no pending message {tea.offset}"):
            schedules.cancel("reminders", tea.partition, tea.offset)
        with pytest.raises(NotPending):
            schedules.move("reminders", tea.partition, tea.offset, delay=LATER)
        broker.clock.advance(hours=1)
        assert values(reminders.read(1)) == ["cake"]
        with pytest.raises(NotPending):
            schedules.cancel("reminders", cake.partition, cake.offset)
        with pytest.raises(NotPending):
            schedules.cancel("reminders", 0, 1_000_000)
        assert reminders.until_now("end") == []


def test_what_is_moved_comes_at_the_new_time(broker: LocalBroker, reminders: Reader) -> None:
    with Producer(broker.bootstrap) as producer, Schedules(broker.bootstrap) as schedules:
        tea = producer.send_and_wait("reminders", "tea", delay=LATER)
        cake = producer.send_and_wait("reminders", "cake", delay=timedelta(days=1))
        schedules.move("reminders", tea.partition, tea.offset, delay=timedelta(hours=2))
        schedules.move("reminders", cake.partition, cake.offset, deliver_at=datetime.now(UTC) + timedelta(hours=1))
        broker.clock.advance(minutes=30)
        assert reminders.until_now("soon") == []
        broker.clock.advance(hours=2)
        found = reminders.read(2)
    assert values(found) == ["cake", "tea"]
    assert found[1].header("headrace.scheduled.id") == str(tea.offset).encode()


def test_a_key_cancels_all_that_is_pending_with_it(broker: LocalBroker) -> None:
    create_topic(broker, "reminders", 3, {"headrace.delay.enable": "true"})
    with Producer(broker.bootstrap) as producer, Schedules(broker.bootstrap) as schedules:
        for number in range(3):
            producer.send("reminders", f"tea {number}", key="alice", delay=LATER)
        producer.send("reminders", "cake", key="bob", delay=LATER)
        producer.flush()
        schedules.cancel_key("reminders", "alice")
        with pytest.raises(NotPending, match="nothing pending with the key 'alice'"):
            schedules.cancel_key("reminders", "alice")
        broker.clock.advance(hours=1)
    reader = Reader(broker, 3)
    assert values(reader.read(1)) == ["cake"]
    assert reader.until_now("end") == []
    reader.close()


def test_pending_messages_are_there_after_a_restart(broker: LocalBroker, reminders: Reader) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send("reminders", "tea", delay=LATER)
    broker.kill()
    broker.start()
    assert reminders.until_now("before") == []
    broker.clock.advance(hours=1)
    assert values(reminders.read(1)) == ["tea"]


def test_asyncio_does_the_same(broker: LocalBroker, reminders: Reader) -> None:
    async def send() -> None:
        async with AsyncProducer(broker.bootstrap) as producer, AsyncSchedules(broker.bootstrap) as schedules:
            await producer.send("reminders", "tea", delay=LATER)
            cake = await producer.send_and_wait("reminders", "cake", deliver_at=datetime.now(UTC) + LATER)
            moved = await producer.send_and_wait("reminders", "later", key="k", delay=LATER)
            await schedules.cancel("reminders", cake.partition, cake.offset)
            await schedules.move("reminders", moved.partition, moved.offset, delay=timedelta(days=1))
            with pytest.raises(NotPending):
                await schedules.cancel("reminders", cake.partition, cake.offset)
            await producer.flush()

    asyncio.run(send())
    broker.clock.advance(hours=1)
    assert values(reminders.read(1)) == ["tea"]
    asyncio.run(cancel_key(broker))
    broker.clock.advance(days=2)
    assert reminders.until_now("end") == []


async def cancel_key(broker: LocalBroker) -> None:
    async with AsyncSchedules(broker.bootstrap) as schedules:
        await schedules.cancel_key("reminders", "k")
