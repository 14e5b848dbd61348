"""Clients of kafka-python, made for one test and closed after it."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

NewTopic = Callable[..., str]
NewConsumer = Callable[..., KafkaConsumer]
NewProducer = Callable[..., KafkaProducer]


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


@pytest.fixture
def new_topic(admin: KafkaAdminClient, unique: Callable[[str], str]) -> Iterator[NewTopic]:
    """Makes topics, and deletes them afterwards: this client likes to ask for all that there are."""
    made: set[str] = set()

    def create(partitions: int = 1, name: str = "", **config: str) -> str:
        name = name or unique("topic")
        dotted = {key.replace("_", "."): value for key, value in config.items()}
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": dotted}
        admin.create_topics({name: wanted}, wait_for_metadata=True)
        made.add(name)
        return name

    yield create
    if made:
        admin.delete_topics(list(made))


@pytest.fixture
def new_producer(bootstrap: str) -> Iterator[NewProducer]:
    made: list[KafkaProducer] = []

    def create(**config: Any) -> KafkaProducer:
        made.append(KafkaProducer(bootstrap_servers=bootstrap, **config))
        return made[-1]

    yield create
    for producer in made:
        producer.close(timeout=10)


@pytest.fixture
def new_consumer(bootstrap: str, unique: Callable[[str], str]) -> Iterator[NewConsumer]:
    made: list[KafkaConsumer] = []
    numbers = itertools.count()

    def create(**config: Any) -> KafkaConsumer:
        defaults: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "group_id": unique("group"),
            "client_id": f"member-{next(numbers)}",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 200,
            "metadata_max_age_ms": 500,
            "fetch_max_wait_ms": 100,
        }
        made.append(KafkaConsumer(**(defaults | config)))
        return made[-1]

    yield create
    for consumer in made:
        consumer.close(timeout_ms=5000)
