"""A message that would come at the wrong time is refused before it is sent, and so is a change that makes no sense."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from headrace import AsyncProducer, AsyncSchedules, Producer, Record, Schedules
from headrace.sdk import BadMessage, Consumer, TopicMissing
from headrace.testing.local_broker import LocalBroker

from .topics import create_topic

LATER = timedelta(minutes=10)
KEEPS_NOTHING = (
    r"topic orders keeps no messages back: run `headrace topic alter orders -c headrace\.delay\.enable=true`"
)


def end_of(broker: LocalBroker, topic: str) -> int:
    with Consumer(broker.bootstrap, topic, group="ends") as consumer:
        return consumer.open().get_watermark_offsets(_place(topic), timeout=10)[1]


def _place(topic: str) -> Any:
    from confluent_kafka import TopicPartition

    return TopicPartition(topic, 0)


def test_a_topic_that_keeps_nothing_back_gets_no_delayed_message(broker: LocalBroker) -> None:
    create_topic(broker, "orders")
    with Producer(broker.bootstrap) as producer:
        for timing in ({"delay": LATER}, {"deliver_at": datetime.now(UTC) + LATER}, {"cron": "0 8 * * *"}):
            with pytest.raises(BadMessage, match=KEEPS_NOTHING):
                producer.send("orders", "too early", **timing)  # type: ignore[arg-type]
        with pytest.raises(BadMessage, match=KEEPS_NOTHING):
            producer.send_record(Record("too early", topic="orders", delay=LATER))
    assert end_of(broker, "orders") == 0


def test_a_bad_time_is_refused_before_the_broker_is_asked() -> None:
    with Producer("127.0.0.1:1") as producer:
        with pytest.raises(BadMessage, match="delay and cron contradict"):
            producer.send("orders", "value", delay=LATER, cron="0 8 * * *")
        with pytest.raises(BadMessage, match="has no time zone"):
            producer.send_and_wait("orders", "value", deliver_at=datetime(2027, 1, 1))


def test_the_asyncio_producer_refuses_the_same(broker: LocalBroker) -> None:
    create_topic(broker, "orders")

    async def refusals() -> None:
        async with AsyncProducer(broker.bootstrap) as producer:
            with pytest.raises(BadMessage, match=KEEPS_NOTHING):
                await producer.send("orders", "too early", delay=LATER)
            with pytest.raises(BadMessage, match=KEEPS_NOTHING):
                await producer.send_and_wait("orders", "too early", cron="0 8 * * *")

    asyncio.run(refusals())
    assert end_of(broker, "orders") == 0


CHANGES: list[tuple[Callable[[Schedules], Any], str]] = [
    (lambda s: s.cancel("orders", 0, 1), KEEPS_NOTHING),
    (lambda s: s.cancel_key("orders", "k"), KEEPS_NOTHING),
    (lambda s: s.move("orders", 0, 1, delay=LATER), KEEPS_NOTHING),
    (lambda s: s.list("orders"), KEEPS_NOTHING),
    (lambda s: s.show("orders", 0, 1), KEEPS_NOTHING),
    (lambda s: s.cancel("orders", -1, 1), "partition=-1 is not a whole number"),
    (lambda s: s.cancel("orders", 0, -1), "id=-1 is not a whole number"),
    (lambda s: s.show("orders", 0, cast(int, "1")), "id='1' is not a whole number"),
    (lambda s: s.move("orders", 0, 1), "give delay or deliver_at"),
    (lambda s: s.move("orders", 0, 1, delay=-LATER), "is negative"),
    (lambda s: s.move("orders", 0, 1, delay=LATER, deliver_at=5), "contradict each other"),
    (lambda s: s.move_due("orders", key="k"), "give delay or deliver_at"),
    (lambda s: s.cancel_due("orders"), "without a limit"),
    (lambda s: s.move_due("orders", delay=LATER), "without a limit"),
    (lambda s: s.list("orders", due_after=datetime(2027, 1, 1)), "due_after=.* has no time zone"),
    (lambda s: s.list("orders", key=cast(int, 1.5)), "a key is bytes, text or an integer"),
]


def test_a_change_that_makes_no_sense_is_refused(broker: LocalBroker) -> None:
    create_topic(broker, "orders")
    with Schedules(broker.bootstrap) as schedules:
        for call, complaint in CHANGES:
            with pytest.raises(BadMessage, match=complaint):
                call(schedules)
    assert end_of(broker, "orders") == 0


def test_a_topic_of_the_name_that_is_no_list_is_left_alone(broker: LocalBroker) -> None:
    create_topic(broker, "orders")
    create_topic(broker, "orders.pending")
    with (
        Schedules(broker.bootstrap) as schedules,
        pytest.raises(BadMessage, match=r"orders\.pending exists, but does not list what is pending in orders"),
    ):
        schedules.list("orders")


def test_the_asyncio_schedules_refuse_the_same(broker: LocalBroker) -> None:
    create_topic(broker, "orders")

    async def refusals() -> None:
        async with AsyncSchedules(broker.bootstrap) as schedules:
            with pytest.raises(BadMessage, match=KEEPS_NOTHING):
                await schedules.cancel("orders", 0, 1)
            with pytest.raises(BadMessage, match="without a limit"):
                await schedules.cancel_due("orders")
            with pytest.raises(BadMessage, match="give delay or deliver_at"):
                await schedules.move("orders", 0, 1)

    asyncio.run(refusals())


def test_a_missing_topic_is_named(broker_factory: Any) -> None:
    broker = broker_factory({"auto.create.topics.enable": "false"})
    with Producer(broker.bootstrap) as producer, pytest.raises(TopicMissing, match="topic orders does not exist"):
        producer.send("orders", "value", delay=LATER)
    with Schedules(broker.bootstrap) as schedules, pytest.raises(TopicMissing, match="topic orders does not exist"):
        schedules.list("orders")
