"""Creates and deletes the topics of a measurement, with confluent-kafka's admin client."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

REQUEST_SECONDS = 120.0
REMOVAL_SECONDS = 0.5  # until half a gigabyte of files is deleted too, with a tenfold margin


def create(
    broker: str,
    name: str,
    partitions: int = 1,
    *,
    replicas: int = 1,
    min_isr: int = 1,
    settings: Mapping[str, str] | None = None,
) -> None:
    client = _client(broker)
    settings = {"min.insync.replicas": str(min_isr), **(settings or {})}
    made = client.create_topics(
        [NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=settings)],
        request_timeout=REQUEST_SECONDS,
        operation_timeout=REQUEST_SECONDS,
    )
    _wait_for(made[name], f"the topic {name} with {partitions} partitions was not created")


def create_view(broker: str, name: str, base: str, tag: str) -> None:
    """A view of another topic that keeps the records with this tag."""
    client = _client(broker)
    settings = {"headrace.view.of": base, "headrace.view.tags": tag}
    view = NewTopic(name, num_partitions=-1, replication_factor=-1, config=settings)
    made = client.create_topics([view], request_timeout=REQUEST_SECONDS)
    _wait_for(made[name], f"the view {name} of {base} was not created")


def delete(broker: str, name: str) -> None:
    """Delete a topic and wait for the deletion of its files, which would disturb the next measurement."""
    client = _client(broker)
    _wait_for(client.delete_topics([name], request_timeout=REQUEST_SECONDS)[name], f"the topic {name} was not deleted")
    time.sleep(REMOVAL_SECONDS)


@contextlib.contextmanager
def temporary(broker: str, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """A new topic, deleted after the work; kept after a failure, to investigate it."""
    create(broker, name, partitions, settings=settings)
    yield name
    delete(broker, name)


def _wait_for(answer: Future[None], otherwise: str) -> None:
    try:
        answer.result(REQUEST_SECONDS)
    except TimeoutError:
        raise TimeoutError(f"{otherwise} within {REQUEST_SECONDS:.0f} s") from None


def _client(broker: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker, "log_level": 2})
