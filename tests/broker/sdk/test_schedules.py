"""What is pending, listed by the SDK through the pending view, and changed by time, by key and one by one."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace import AsyncSchedules, Consumer, Message, Producer, Schedules
from headrace.sdk import BadMessage, NotPending, SdkError, TopicMissing
from headrace.testing.local_broker import LocalBroker
from tests.clients.patience import until

from .topics import create_topic

Send = Callable[..., Message]


@pytest.fixture
def send(broker: LocalBroker) -> Any:
    """Sends one delayed message and returns its receipt."""
    create_topic(broker, "reminders", 2, {"headrace.delay.enable": "true"})
    with Producer(broker.bootstrap) as producer:
        yield lambda value, minutes=10, **more: producer.send_and_wait(
            "reminders", value, **({"partition": 0, "delay": timedelta(minutes=minutes)} | more)
        )


@pytest.fixture
def schedules(broker: LocalBroker) -> Any:
    with Schedules(broker.bootstrap, codec="text") as opened:
        yield opened


def listed(schedules: Schedules, **limits: Any) -> list[str]:
    return [pending.value for pending in schedules.list("reminders", **limits)]


def test_pending_messages_are_listed_by_due_time_with_all_they_have(send: Send, schedules: Schedules) -> None:
    late = send("late", 30, partition=1, key="alice", headers=[("a", b"1")])
    early = send("early", 20)
    report = send("report", delay=None, cron="0 8 * * *", cron_tz="Europe/Berlin", key="bob")
    found = {pending.value: pending for pending in schedules.list("reminders")}
    assert [pending.due_ms for pending in found.values()] == sorted(pending.due_ms for pending in found.values())
    for receipt, value in ((late, "late"), (early, "early"), (report, "report")):
        assert (found[value].topic, found[value].partition, found[value].id) == (
            "reminders",
            receipt.partition,
            receipt.offset,
        )
    assert (found["late"].key, found["late"].message.header("a")) == (b"alice", b"1")
    assert timedelta(minutes=29) < found["late"].due - datetime.now(UTC) < timedelta(minutes=31)
    assert (found["report"].cron, found["report"].cron_tz) == ("0 8 * * *", "Europe/Berlin")
    assert (found["late"].cron, found["late"].cron_tz) == (None, None)
    assert found["report"].due.minute == 0


def test_nothing_is_pending_at_first(send: Send, schedules: Schedules) -> None:
    assert schedules.list("reminders") == []


def test_a_list_can_be_limited_by_key_and_time(send: Send, schedules: Schedules) -> None:
    for minutes in (10, 20, 30):
        send(f"tea {minutes}", minutes, key="alice")
        send(f"cake {minutes}", minutes, key="bob", partition=1)
    assert listed(schedules, key="alice") == ["tea 10", "tea 20", "tea 30"]
    middle = schedules.list("reminders", key="alice")[1].due_ms
    assert listed(schedules, key="alice", due_after=middle) == ["tea 20", "tea 30"]
    assert listed(schedules, key="alice", due_before=middle) == ["tea 10"]
    assert listed(schedules, key="nobody") == []


def test_what_was_delivered_cancelled_or_moved_is_listed_as_it_is_now(
    broker: LocalBroker, send: Send, schedules: Schedules
) -> None:
    send("delivered", 5)
    cancelled, moved = send("cancelled", 20), send("moved", 20)
    schedules.cancel("reminders", 0, cancelled.offset)
    schedules.move("reminders", 0, moved.offset, delay=timedelta(hours=5))
    broker.clock.advance(minutes=10)
    until("the list without what was delivered", lambda: listed(schedules) == ["moved"])
    (pending,) = schedules.list("reminders")
    assert pending.id == moved.offset
    assert pending.due - datetime.now(UTC) > timedelta(hours=4)


def test_one_message_is_shown_by_its_id(send: Send, schedules: Schedules) -> None:
    first, second = send("first"), send("second")
    assert schedules.show("reminders", 0, second.offset).value == "second"
    schedules.cancel("reminders", 0, first.offset)
    for partition, message_id in ((0, first.offset), (1, second.offset), (0, 1_000_000)):
        with pytest.raises(NotPending, match=f"partition {partition} has no pending message {message_id}"):
            schedules.show("reminders", partition, message_id)
    with pytest.raises(TopicMissing, match="has no partition 2: it has 0 to 1"):
        schedules.show("reminders", 2, 0)


def test_a_time_is_cancelled_and_counted(send: Send, schedules: Schedules) -> None:
    for minutes in range(10, 60, 10):
        send(str(minutes), minutes, partition=minutes // 10 % 2)
    soon = datetime.now(UTC) + timedelta(minutes=35)
    assert schedules.cancel_due("reminders", due_before=soon) == 3
    assert listed(schedules) == ["40", "50"]
    assert schedules.cancel_due("reminders", due_before=soon) == 0
    with pytest.raises(BadMessage, match="without a limit"):
        schedules.cancel_due("reminders")


def test_a_time_and_a_key_are_moved_and_counted(send: Send, schedules: Schedules) -> None:
    for minutes in (10, 20, 30):
        send(f"tea {minutes}", minutes, key="alice")
        send(f"cake {minutes}", minutes, key="bob")
    later = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    assert schedules.move_due("reminders", due_before=later, key="alice", deliver_at=later) == 3
    assert listed(schedules) == ["cake 10", "cake 20", "cake 30", "tea 10", "tea 20", "tea 30"]
    assert {pending.due for pending in schedules.list("reminders", key="alice")} == {later}


def test_only_what_is_still_pending_counts(send: Send, schedules: Schedules) -> None:
    for number in range(5):
        send(str(number))
    found = schedules.list("reminders")
    schedules.cancel("reminders", 0, found[2].id)
    assert schedules.move_each(found, delay=timedelta(hours=1)) == 4
    assert schedules.cancel_each(found) == 4
    assert schedules.list("reminders") == []


def test_thousands_are_listed_and_cancelled(broker: LocalBroker, send: Send, schedules: Schedules) -> None:
    with Producer(broker.bootstrap, profile="throughput") as producer:
        for number in range(3000):
            producer.send("reminders", str(number), delay=timedelta(hours=1))
    assert sorted(map(int, listed(schedules))) == list(range(3000))
    soon = datetime.now(UTC) + timedelta(hours=2)
    assert schedules.cancel_due("reminders", due_before=soon) == 3000
    assert schedules.list("reminders") == []


def test_asyncio_does_the_same(broker: LocalBroker, send: Send) -> None:
    first = send("first", 10, key="alice")
    send("second", 20, key="alice")

    async def look() -> None:
        async with AsyncSchedules(broker.bootstrap, codec="text") as schedules:
            found = await schedules.list("reminders", key="alice")
            assert [pending.value for pending in found] == ["first", "second"]
            assert (await schedules.show("reminders", 0, first.offset)).value == "first"
            assert await schedules.move_due("reminders", key="alice", delay=timedelta(hours=1)) == 2
            assert await schedules.move_each(found, delay=timedelta(hours=2)) == 2
            assert await schedules.cancel_each(found[:1]) == 1
            limit = datetime.now(UTC) + timedelta(days=1)
            assert await schedules.cancel_due("reminders", due_before=limit) == 1

    asyncio.run(look())


def test_a_consumer_reads_the_list_and_is_told_that_it_has_no_times(
    broker: LocalBroker, send: Send, schedules: Schedules
) -> None:
    receipt = send("later")
    assert listed(schedules) == ["later"]
    with Consumer(broker.bootstrap, "reminders.pending", group="g") as reader:
        (message,) = reader.poll(timeout_s=10)
        assert (message.value, message.offset) == (b"later", receipt.offset)
        with pytest.raises(SdkError, match="cannot be looked up by time"):
            reader.seek_to_time(datetime.now(UTC))
