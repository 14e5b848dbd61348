"""Share groups with confluent-kafka's share consumer, which is a preview: it speaks version 1, without renewing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.broker.api.share_client import ShareClient

RELEASE, REJECT = 2, 3
PATIENCE_S = 30.0


class Shop:
    def __init__(self, broker: Any) -> None:
        self.bootstrap, self.port = broker.bootstrap, broker.port
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})

    def create(self, partitions: int = 1) -> None:
        self.admin.create_topics([NewTopic("orders", partitions, 1)])["orders"].result(20)

    def configure(self, **settings: str) -> None:
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.GROUP, "cooks", incremental_configs=entries)
        next(iter(self.admin.incremental_alter_configs([resource]).values())).result(20)

    def produce(self, count: int, first: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for number in range(first, first + count):
            producer.produce("orders", b"%d" % number)
        assert producer.flush(20) == 0

    @contextmanager
    def consumer(self, **settings: str) -> Iterator[ShareConsumer]:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        consumer = ShareConsumer({"bootstrap.servers": self.bootstrap, "group.id": "cooks", "log_level": 0} | named)
        consumer.subscribe(["orders"])
        try:
            yield consumer
        finally:
            consumer.close()


@pytest.fixture
def shop(broker: Any) -> Shop:
    return Shop(broker)


def poll_until(consumers: list[ShareConsumer], count: int, seen: Counter[int]) -> None:
    """Until so many different records were delivered."""
    give_up_at = time.monotonic() + PATIENCE_S
    while len(seen) < count:
        assert time.monotonic() < give_up_at, f"{len(seen)} of {count} records were delivered"
        for consumer in consumers:
            for message in consumer.poll(0.2):
                assert message.error() is None
                seen[int(message.value())] += 1


def test_members_of_one_partition_share_its_records(shop: Shop) -> None:
    shop.create()
    shop.configure(share_auto_offset_reset="earliest")
    shop.produce(3000)
    seen: Counter[int] = Counter()
    with shop.consumer() as one, shop.consumer() as other:
        poll_until([one, other], 3000, seen)
        for consumer in (one, other):
            assert all(error is None for error in consumer.commit_sync(20).values())
    assert set(seen.values()) == {1}
    shop.produce(10, first=3000)
    with shop.consumer() as third:
        poll_until([third], 3010, seen)
    assert seen == Counter(range(3010)), "accepted records came back"


def test_records_are_released_rejected_and_delivered_again(shop: Shop) -> None:
    shop.create(2)
    shop.configure(share_auto_offset_reset="earliest")
    shop.produce(30)
    deliveries: Counter[int] = Counter()
    done = set[int]()
    give_up_at = time.monotonic() + PATIENCE_S
    with shop.consumer(share_acknowledgement_mode="explicit") as consumer:
        while len(done) < 30:
            assert time.monotonic() < give_up_at
            for message in consumer.poll(0.5):
                number = int(message.value())
                deliveries[number] += 1
                if number % 3 == 0 and deliveries[number] < 3:
                    consumer.acknowledge(message, RELEASE)
                else:
                    consumer.acknowledge(message, REJECT if number % 5 == 0 else 1)
                    done.add(number)
            assert all(error is None for error in consumer.commit_sync(20).values())
    assert all(count == (3 if number % 3 == 0 else 1) for number, count in deliveries.items())


def test_a_member_that_goes_leaves_its_records_to_others(shop: Shop) -> None:
    shop.create()
    shop.configure(share_auto_offset_reset="earliest")
    shop.produce(100)
    seen: Counter[int] = Counter()
    with shop.consumer(share_acknowledgement_mode="explicit") as consumer:
        poll_until([consumer], 1, seen)
        assert len(seen) == 100
    with shop.consumer() as other:
        poll_until([other], 100, again := Counter[int]())
    assert again == Counter(range(100))


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_the_isolation_level_is_the_groups(shop: Shop, level: str) -> None:
    shop.create()
    shop.configure(share_auto_offset_reset="earliest", share_isolation_level=level)
    producer = Producer({"bootstrap.servers": shop.bootstrap, "transactional.id": "x", "log_level": 0})
    producer.init_transactions(20)
    for number in range(40):
        producer.begin_transaction()
        producer.produce("orders", b"%d" % number)
        if number % 2:
            producer.commit_transaction(20)
        else:
            producer.flush(20)  # or it would never be written
            producer.abort_transaction(20)
    expected = {number for number in range(40) if number % 2 or level == "read_uncommitted"}
    seen: Counter[int] = Counter()
    with shop.consumer() as consumer:
        poll_until([consumer], len(expected), seen)
        assert seen == Counter(expected)
        assert all(error is None for error in consumer.commit_sync(20).values())
        with ShareClient(shop.port) as client:
            client.know_topic()
            give_up_at = time.monotonic() + PATIENCE_S
            while client.stored().start_offset < 80:
                assert time.monotonic() < give_up_at, f"markers count as lag: {client.stored()}"
                consumer.poll(0.1)
