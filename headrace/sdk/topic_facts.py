"""Topic metadata that clients ask for before they use a topic; a missing topic is a one-line error.

Called by producer and consumer; works on any librdkafka client.
"""

from __future__ import annotations

from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException

from headrace.sdk.errors import TopicMissing, cause_of, explained


class MetadataSource(Protocol):
    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any: ...


def partition_count(client: MetadataSource, bootstrap: str, topic: str, timeout_s: float) -> int:
    """How many partitions a topic has. A broker with auto.create.topics.enable creates it for a producer that asks."""
    try:
        found = client.list_topics(topic, timeout=timeout_s).topics[topic]
    except KafkaException as error:
        raise explained(cause_of(error), f"asking {bootstrap} about topic {topic}") from error
    if found.error is not None and found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        raise TopicMissing(
            f"topic {topic} does not exist at {bootstrap}: create it with `headrace topic create {topic}`"
        )
    if found.error is not None and found.error.code() != KafkaError.LEADER_NOT_AVAILABLE:
        raise explained(found.error, f"asking {bootstrap} about topic {topic}")
    return len(found.partitions)
