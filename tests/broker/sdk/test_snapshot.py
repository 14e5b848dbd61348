"""A reading that ends, also where others write all the time and librdkafka never reports an end."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Event, Thread
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from headrace.sdk import Producer
from headrace.sdk.snapshot import Snapshot
from headrace.testing.local_broker import LocalBroker

from .topics import create_topic, fill


def read(broker: LocalBroker, *places: tuple[int, int], **settings: Any) -> list[str]:
    """The values from these offsets of partitions of `orders` on."""
    with closing(Snapshot({"bootstrap.servers": broker.bootstrap, **settings}, "reading orders")) as snapshot:
        found = snapshot.read([TopicPartition("orders", *place) for place in places])
        return [(inner.value() or b"").decode() for inner in found]


@contextmanager
def busy(broker: LocalBroker, aborted: bool) -> Iterator[None]:
    """Somebody who writes to partition 0 of `orders` without a pause, in transactions."""
    over = Event()
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "t", "linger.ms": 0}
    )
    producer.init_transactions(10)

    def write() -> None:
        while not over.is_set():
            producer.begin_transaction()
            producer.produce("orders", b"noise", partition=0)
            (producer.abort_transaction if aborted else producer.commit_transaction)(10)

    thread = Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_partitions_are_read_to_their_ends(broker: LocalBroker) -> None:
    create_topic(broker, "orders", 3)
    with Producer(broker.bootstrap) as producer:
        for number in range(2500):
            producer.send("orders", str(number), partition=number % 2)
    everything = read(broker, *((partition, OFFSET_BEGINNING) for partition in range(3)))
    assert sorted(map(int, everything)) == list(range(2500))
    assert sorted(read(broker, (0, 1248), (1, 1249))) == ["2496", "2498", "2499"]


def test_a_place_beyond_the_end_has_nothing(broker: LocalBroker) -> None:
    create_topic(broker, "orders")
    assert read(broker, (0, OFFSET_BEGINNING)) == []
    assert read(broker, (0, 7)) == []
    fill(broker, "orders", 3)
    assert read(broker, (0, 2)) == ["2"]
    assert read(broker, (0, 3)) == []
    assert read(broker, (0, 1_000_000)) == []


def test_reading_ends_while_messages_come_all_the_time(broker: LocalBroker) -> None:
    create_topic(broker, "orders")
    fill(broker, "orders", 100)
    with busy(broker, aborted=False):
        assert read(broker, (0, OFFSET_BEGINNING))[:100] == [str(number) for number in range(100)]


def test_reading_ends_while_only_what_is_skipped_comes_all_the_time(broker: LocalBroker) -> None:
    create_topic(broker, "orders")
    fill(broker, "orders", 100)
    with busy(broker, aborted=True):
        for no_end_reported in ({}, {"enable.partition.eof": False}):
            found = read(broker, (0, OFFSET_BEGINNING), **no_end_reported)
            assert found == [str(number) for number in range(100)]
