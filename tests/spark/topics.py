"""Topics of one test: made, filled and asked about by a stock client, so that another's eyes judge the source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.clients.patience import until

PATIENCE_S = 60.0


class Topics:
    def __init__(self, bootstrap: str, owner: str) -> None:
        self.bootstrap = bootstrap
        self._owner = re.sub(r"[^A-Za-z0-9_-]+", "-", owner)[:150]
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, name: str, partitions: int = 1, **config: str) -> str:
        """A topic whose whole name no other test has."""
        topic = f"{self._owner}.{name}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        made = self._admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])
        made[topic].result(PATIENCE_S)
        self._wait_for(topic, partitions)
        return topic

    def grow(self, topic: str, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(PATIENCE_S)
        self._wait_for(topic, partitions)

    def _wait_for(self, topic: str, partitions: int) -> None:
        """Kafka answers before every broker has heard of a topic."""

        def known() -> bool:
            found = self._admin.list_topics(timeout=PATIENCE_S).topics.get(topic)
            return found is not None and len(found.partitions) == partitions

        until(f"topic {topic} is known with {partitions} partitions", known, PATIENCE_S)

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(PATIENCE_S)

    def cut(self, topic: str, partition: int, before: int) -> None:
        """Delete the records before an offset, as retention would."""
        asked = TopicPartition(topic, partition, before)
        next(iter(self._admin.delete_records([asked]).values())).result(PATIENCE_S)

    def fill(self, topic: str, partition: int, values: Iterable[str], **settings: Any) -> None:
        """Produce these values, all with key None and no header."""
        self.send(topic, partition, [{"value": value} for value in values], **settings)

    def send(self, topic: str, partition: int, messages: Sequence[dict[str, Any]], **settings: Any) -> None:
        """Produce these messages, in transactions if a transactional id is among the settings."""
        room = {"queue.buffering.max.messages": max(100_000, len(messages))}
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5} | room | settings)
        for message in messages:
            producer.produce(topic, partition=partition, **message)
        assert producer.flush(PATIENCE_S) == 0, f"the broker did not take all records of {topic}"

    def committed(self, group: str, topic: str, partitions: int) -> list[int]:
        """The offsets that a group has committed."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        try:
            asked = [TopicPartition(topic, number) for number in range(partitions)]
            return [found.offset for found in consumer.committed(asked, PATIENCE_S)]
        finally:
            consumer.close()
