"""Makes and removes the topics of a measurement, through confluent-kafka's admin client."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

REQUEST_SECONDS = 120.0


def create(broker: str, name: str, partitions: int = 1) -> None:
    client = _client(broker)
    made = client.create_topics(
        [NewTopic(name, num_partitions=partitions, replication_factor=1)],
        request_timeout=REQUEST_SECONDS,
        operation_timeout=REQUEST_SECONDS,
    )
    made[name].result(REQUEST_SECONDS)


def delete(broker: str, name: str) -> None:
    client = _client(broker)
    client.delete_topics([name], request_timeout=REQUEST_SECONDS)[name].result(REQUEST_SECONDS)


def _client(broker: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker, "log_level": 2})
