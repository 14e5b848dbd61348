"""The blocking producer against a real broker: receipts, failures that cannot be missed, errors in one line."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.sdk import (
    BadMessage,
    BadSetting,
    Consumer,
    Message,
    NotDelivered,
    Producer,
    SdkError,
    TopicMissing,
    WrongMoment,
)
from headrace.testing.local_broker import LocalBroker

from .topics import create_topic

NOBODY = "127.0.0.1:1"  # a port on which nothing listens


def test_a_receipt_says_where_the_message_stands(broker: LocalBroker) -> None:
    create_topic(broker, "orders")
    with Producer(broker.bootstrap, codec="json") as producer:
        assert producer.send_and_wait("orders", {"n": 1}, key=7).offset == 0
        receipt = producer.send_and_wait("orders", None, key="k", timestamp_ms=1_700_000_000_000)
    assert (receipt.topic, receipt.partition, receipt.offset, receipt.key_text) == ("orders", 0, 1, "k")
    assert receipt.timestamp_ms == 1_700_000_000_000


def test_everything_that_was_sent_comes_out_as_it_went_in(broker: LocalBroker) -> None:
    create_topic(broker, "orders")
    with Producer(broker.bootstrap, profile="throughput") as producer:
        producer.send("orders", b"\x00\xff", key=b"k", headers=[("h", b"1"), ("h", None)], tags=["a", "b"], id="i-1")
        producer.send("orders", None, key="gone")
    with Consumer(broker.bootstrap, "orders", group="g") as consumer:
        found = read(consumer, 2)
    assert (found[0].value, found[0].key, found[0].tags, found[0].id) == (b"\x00\xff", b"k", ("a", "b"), "i-1")
    assert found[0].headers[:2] == (("h", b"1"), ("h", None))
    assert (found[1].value, found[1].key_text) == (None, "gone")


@pytest.mark.parametrize("delivery", ["at-most-once", "at-least-once"])
def test_leaving_the_block_delivers_what_is_queued(broker: LocalBroker, delivery: Any) -> None:
    create_topic(broker, "orders")
    with Producer(broker.bootstrap, delivery=delivery, linger_ms=5000) as producer:
        for number in range(100):
            producer.send("orders", str(number))
    with Consumer(broker.bootstrap, "orders", group="g") as consumer:
        assert len(read(consumer, 100)) == 100


def test_a_full_queue_makes_send_wait_and_loses_nothing(broker: LocalBroker) -> None:
    create_topic(broker, "orders")
    outcomes: list[tuple[SdkError | None, Message]] = []
    with Producer(broker.bootstrap, profile="latency", queue_buffering_max_messages=10) as producer:
        for number in range(500):
            producer.send("orders", str(number), on_delivery=lambda *outcome: outcomes.append(outcome))
    assert [(error, receipt.offset) for error, receipt in outcomes] == [(None, offset) for offset in range(500)]


def test_a_message_that_was_not_delivered_is_told_by_flush_and_only_once() -> None:
    producer = Producer(NOBODY, message_timeout_ms=50)
    producer.send("orders", "v")
    with pytest.raises(
        NotDelivered, match="1 message is not delivered; the first: sending to orders: Message timed out"
    ):
        producer.flush()
    producer.flush()
    producer.close()


def test_a_message_with_its_own_callback_is_told_there() -> None:
    outcomes: list[SdkError | None] = []
    with Producer(NOBODY, message_timeout_ms=50) as producer:
        producer.send("orders", "v", on_delivery=lambda error, _: outcomes.append(error))
        producer.flush()
    assert [type(error) for error in outcomes] == [NotDelivered]


def test_what_cannot_be_delivered_in_time_is_told_by_close() -> None:
    producer = Producer(NOBODY)
    producer.send("orders", "v")
    with pytest.raises(NotDelivered):
        producer.close(timeout_s=0.05)


def test_an_error_inside_the_block_is_not_hidden_by_the_one_of_closing() -> None:
    def fails() -> None:
        with Producer(NOBODY, message_timeout_ms=50) as producer:
            producer.send("orders", "v")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()


MISTAKES: list[tuple[Callable[[Producer], Any], type[SdkError], str]] = [
    (lambda p: p.send_and_wait("orders", "v", partition=9), TopicMissing, "sending to orders: Unknown partition; "),
    (lambda p: p.send("orders", "v" * 2_000_000), BadMessage, "Message size too large; send less, or raise"),
    (lambda p: p.send_and_wait("no such name", "v"), BadMessage, "a topic name has letters, digits"),
    (lambda p: p.send("orders", 5), BadMessage, "cannot encode a value for orders"),
    (lambda p: p.send("orders", "v", headers=[("h", 5)]), BadMessage, "a message to orders cannot be sent"),  # type: ignore[list-item]
    (lambda p: p.begin_transaction(), WrongMoment, "transactions need Producer"),
]


@pytest.mark.parametrize(("mistake", "kind", "words"), MISTAKES, ids=[words for _, _, words in MISTAKES])
def test_a_mistake_is_told_in_one_line(
    broker: LocalBroker, mistake: Callable[[Producer], Any], kind: type[SdkError], words: str
) -> None:
    create_topic(broker, "orders")
    with Producer(broker.bootstrap) as producer:
        with pytest.raises(kind) as caught:
            mistake(producer)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_setting_that_librdkafka_does_not_know_is_named() -> None:
    with pytest.raises(BadSetting, match=r'No such configuration property: "lingr\.ms"'):
        Producer(NOBODY, lingr_ms=5).open()


def test_a_closed_producer_says_so() -> None:
    producer = Producer(NOBODY)
    producer.close()
    with pytest.raises(WrongMoment, match="closed"):
        producer.send("orders", "v")


def read(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    for _ in range(100):
        found += consumer.poll(timeout_s=0.2)
        if len(found) >= count:
            break
    return found
