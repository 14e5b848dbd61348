"""Delayed and scheduled records with real clients: kept back, released in order, cancelled, moved, over restarts."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "reminders"
PATIENCE_S = 30
HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def made(broker: Any) -> None:
    make(broker)


def make(broker: Any, topic: str = TOPIC, **more: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {"headrace.delay.enable": "true"} | more
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(PATIENCE_S)


def send(
    broker: Any, value: str, headers: dict[str, str] | None = None, *, key: str | None = None, topic: str = TOPIC,
    **settings: Any,
) -> int:  # fmt: skip
    """The offset that the producer is told."""
    told: list[int] = []

    def answered(error: Any, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        told.append(message.offset())

    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0} | settings)
    producer.produce(topic, value.encode(), key=key, headers=headers or {}, on_delivery=answered)
    assert producer.flush(PATIENCE_S) == 0
    return told[0]


def read(broker: Any, count: int, topic: str = TOPIC, **settings: Any) -> list[Message]:
    """Exactly `count` records from the start, and the position after them is the end of the topic: lag 0."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False,
         "enable.partition.eof": True, "auto.offset.reset": "earliest"} | settings
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Message] = []
    while True:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"only {len(found)} of {count} records came, and no end"
        if message.error() is None:
            found.append(message)
            continue
        assert message.error().code() == KafkaError._PARTITION_EOF
        if len(found) >= count:
            break
    (position,) = consumer.position([TopicPartition(topic, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)
    consumer.close()
    assert len(found) == count
    assert position.offset == end
    return found


def values(messages: list[Message]) -> list[bytes]:
    return [message.value() for message in messages]


def test_a_delayed_record_comes_when_it_is_due_and_not_before(broker: Any) -> None:
    before = broker.clock.now_ms()
    key = send(broker, "later", {"headrace.delay-ms": str(HOUR_MS), "colour": "red"}, key="k")
    send(broker, "now")
    assert values(read(broker, 1)) == [b"now"]
    broker.clock.advance(minutes=59)
    assert values(read(broker, 1)) == [b"now"]
    broker.clock.advance(minutes=2)
    now, later = read(broker, 2)
    assert (now.value(), later.value(), later.key()) == (b"now", b"later", b"k")
    headers = dict(later.headers())
    assert headers["headrace.scheduled.id"] == b"%d" % key
    assert before + HOUR_MS <= int(headers["headrace.scheduled.for"]) <= broker.clock.now_ms()
    assert headers["colour"] == b"red"
    assert "headrace.delay-ms" not in headers


def test_records_come_in_the_order_of_due_time_and_id(broker: Any) -> None:
    for value, ms in (("c", 3000), ("a", 1000), ("b", 2000), ("a2", 1000)):
        send(broker, value, {"headrace.deliver-at": str(broker.clock.now_ms() // 60000 * 60000 + 120_000 + ms)})
    broker.clock.advance(minutes=5)
    assert values(read(broker, 4)) == [b"a", b"a2", b"b", b"c"]


def test_what_waits_survives_a_restart_and_a_kill(broker: Any) -> None:
    send(broker, "one", {"headrace.delay-ms": "60000"})
    broker.restart()
    send(broker, "two", {"headrace.delay-ms": "60001"})
    broker.kill()
    broker.restart()
    broker.clock.advance(minutes=2)
    assert values(read(broker, 2)) == [b"one", b"two"]
    broker.kill()
    broker.restart()
    assert values(read(broker, 2)) == [b"one", b"two"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("stamped", ["CreateTime", "LogAppendTime"])
def test_every_codec_and_both_kinds_of_time(broker: Any, codec: str, stamped: str) -> None:
    make(broker, "others", **{"message.timestamp.type": stamped})
    send(broker, "x" * 2000, {"headrace.delay-ms": "1000"}, topic="others", **{"compression.type": codec})
    broker.clock.advance(seconds=2)
    assert values(read(broker, 1, "others")) == [b"x" * 2000]


@pytest.mark.parametrize("commit", [True, False])
def test_a_delayed_record_of_a_transaction_counts_once_it_is_committed(broker: Any, commit: bool) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"inside", headers={"headrace.delay-ms": "1000"})
    producer.flush(PATIENCE_S)
    broker.clock.advance(seconds=5)
    if commit:
        producer.commit_transaction(PATIENCE_S)
    else:
        producer.abort_transaction(PATIENCE_S)
    broker.clock.advance(seconds=5)
    send(broker, "outside")
    wanted = {b"inside", b"outside"} if commit else {b"outside"}
    assert set(values(read(broker, len(wanted)))) == wanted


def test_a_date_in_the_past_is_delivered_at_once(broker: Any) -> None:
    key = send(broker, "late", {"headrace.deliver-at": "2001-02-03T04:05:06+07:00"})
    (message,) = read(broker, 1)
    assert dict(message.headers())["headrace.scheduled.id"] == b"%d" % key


def test_a_cancelled_record_never_comes(broker: Any) -> None:
    key = send(broker, "no", {"headrace.delay-ms": "1000"})
    send(broker, "", {"headrace.cancel": str(key)})
    broker.clock.advance(seconds=5)
    send(broker, "yes")
    assert values(read(broker, 1)) == [b"yes"]
    with pytest.raises(KafkaException, match="INVALID_RECORD"):
        send(broker, "", {"headrace.cancel": str(key)})


def test_a_cancel_by_key_takes_all_with_that_key(broker: Any) -> None:
    for value, key in (("a", "x"), ("b", "y"), ("c", "x")):
        send(broker, value, {"headrace.delay-ms": "1000"}, key=key)
    send(broker, "", {"headrace.cancel-key": "x"})
    broker.clock.advance(seconds=5)
    assert values(read(broker, 1)) == [b"b"]


def test_a_moved_record_comes_at_its_new_time(broker: Any) -> None:
    key = send(broker, "moved", {"headrace.delay-ms": "1000"})
    send(broker, "", {"headrace.move": str(key), "headrace.delay-ms": str(HOUR_MS)})
    broker.clock.advance(minutes=1)
    send(broker, "first")
    assert values(read(broker, 1)) == [b"first"]
    broker.clock.advance(hours=1)
    assert values(read(broker, 2)) == [b"first", b"moved"]


def test_a_cron_record_comes_again_and_again_and_what_was_missed_comes_once(broker: Any) -> None:
    key = send(broker, "tick", {"headrace.cron": "*/5 * * * *", "headrace.cron-tz": "Europe/Berlin"})
    broker.clock.advance(minutes=6)
    assert len(read(broker, 1)) == 1
    broker.clock.advance(minutes=61)
    ticks = read(broker, 2)
    assert {dict(tick.headers())["headrace.scheduled.id"] for tick in ticks} == {b"%d" % key}
    send(broker, "", {"headrace.cancel": str(key)})
    broker.clock.advance(minutes=10)
    assert len(read(broker, 2)) == 2


@pytest.mark.parametrize(
    "headers",
    [
        {"headrace.delay-ms": "soon"},
        {"headrace.delay-ms": "-1"},
        {"headrace.delay-ms": "NaN"},
        {"headrace.delay-ms": "99999999999999999999"},
        {"headrace.deliver-at": "2030-01-01T00:00:00"},
        {"headrace.deliver-at": "9999999999999"},
        {"headrace.cron": "0 0 30 2 *"},
        {"headrace.cron": "* * *"},
        {"headrace.cron": "* * * * *", "headrace.cron-tz": "Middle/Earth"},
        {"headrace.cron-tz": "UTC"},
        {"headrace.delay-ms": "1", "headrace.cron": "* * * * *"},
        {"headrace.cancel": "17"},
        {"headrace.cancel-key": "nobody"},
        {"headrace.move": "17", "headrace.delay-ms": "1"},
        {"headrace.move": "17"},
    ],
)
def test_what_cannot_be_done_is_refused(broker: Any, headers: dict[str, str]) -> None:
    with pytest.raises(KafkaException) as refused:
        send(broker, "bad", headers)
    assert refused.value.args[0].code() == KafkaError.INVALID_RECORD
    send(broker, "good")
    assert values(read(broker, 1)) == [b"good"]


def test_on_other_topics_the_headers_mean_nothing(broker: Any) -> None:
    send(broker, "plain", {"headrace.delay-ms": "soon"}, topic="plain")
    (message,) = read(broker, 1, "plain")
    assert dict(message.headers()) == {"headrace.delay-ms": b"soon"}


def test_an_idempotent_producer_and_deduplication_go_together_with_delays(broker: Any) -> None:
    make(broker, "payments", **{"headrace.dedup.window.ms": "600000"})
    headers = {"headrace.delay-ms": "1000", "headrace.id": "1"}
    send(broker, "a", headers, topic="payments", **{"enable.idempotence": True})
    send(broker, "a", headers, topic="payments", **{"enable.idempotence": True})
    broker.clock.advance(seconds=5)
    send(broker, "a", headers, topic="payments", **{"enable.idempotence": True})
    broker.clock.advance(seconds=5)
    assert values(read(broker, 1, "payments")) == [b"a"]


def test_delete_records_cancels_what_waits_before_its_offset(broker: Any) -> None:
    send(broker, "gone", {"headrace.delay-ms": "60000"})
    kept = send(broker, "kept", {"headrace.delay-ms": "60000"})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    place = TopicPartition(TOPIC, 0, kept)
    (deleted,) = admin.delete_records([place]).values()
    assert deleted.result(PATIENCE_S).low_watermark == kept
    broker.clock.advance(minutes=2)
    assert values(read(broker, 1)) == [b"kept"]


def test_an_hour_of_delay_outlives_a_second_of_retention(broker: Any) -> None:
    make(broker, "short", **{"retention.ms": "1000", "segment.ms": "1000", "segment.bytes": "10000"})
    send(broker, "later", {"headrace.delay-ms": str(HOUR_MS)}, topic="short")
    for _ in range(5):
        send(broker, "x" * 5000, topic="short")
        broker.clock.advance(minutes=5)
    broker.kill()
    broker.restart()
    broker.clock.advance(minutes=34)
    broker.clock.advance(minutes=2)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["short"])
    message = consumer.poll(PATIENCE_S)
    while message is not None and message.value() != b"later":
        message = consumer.poll(PATIENCE_S)
    start, _ = consumer.get_watermark_offsets(TopicPartition("short", 0))
    consumer.close()
    assert message is not None
    assert start > 1, "where the record was first has been dropped"
