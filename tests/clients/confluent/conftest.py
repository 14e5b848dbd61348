"""Clients of confluent-kafka (librdkafka), made for one test and closed after it."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.patience import until

NewTopicFixture = Callable[..., str]
NewConsumer = Callable[..., Consumer]
NewProducer = Callable[..., Producer]


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def partitions_of(admin: AdminClient, topic: str) -> list[int]:
    known = admin.list_topics(timeout=10).topics.get(topic)
    return [] if known is None else list(known.partitions)


@pytest.fixture
def new_topic(admin: AdminClient, unique: Callable[[str], str]) -> Iterator[NewTopicFixture]:
    made: set[str] = set()

    def create(partitions: int = 1, name: str = "", **config: str) -> str:
        name = name or unique("topic")
        dotted = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=dotted)])[name].result(30)
        made.add(name)
        # Kafka answers before every broker has heard of the topic.
        until(f"{name} is known", lambda: len(partitions_of(admin, name)) == partitions)
        return name

    yield create
    for deleted in admin.delete_topics(list(made)).values() if made else ():
        deleted.result(30)


@pytest.fixture
def new_producer(bootstrap: str) -> NewProducer:
    def create(**config: Any) -> Producer:
        dotted = {key.replace("_", "."): value for key, value in config.items()}
        return Producer({"bootstrap.servers": bootstrap, "linger.ms": 1} | dotted)

    return create


@pytest.fixture
def new_consumer(bootstrap: str, unique: Callable[[str], str]) -> Iterator[NewConsumer]:
    made: list[Consumer] = []
    numbers = itertools.count()

    def create(**config: Any) -> Consumer:
        dotted = {key.replace("_", "."): value for key, value in config.items()}
        defaults = {
            "bootstrap.servers": bootstrap,
            "group.id": unique("group"),
            "client.id": f"member-{next(numbers)}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            "topic.metadata.refresh.interval.ms": 500,
            "fetch.wait.max.ms": 100,
        }
        if dotted.get("group.protocol") == "consumer":
            # Here it is the broker that says how often members beat, and how long they may be silent.
            del defaults["session.timeout.ms"], defaults["heartbeat.interval.ms"]
        made.append(Consumer(defaults | dotted))
        return made[-1]

    yield create
    for consumer in made:
        consumer.close()
