"""Requests about topics: names, partitions, start and end offsets.

Called by the commands for topics, groups and messages. Invariant: a lookup never creates a topic, even where the broker
has auto.create.topics.enable.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace.cli.connection import REQUEST_TIMEOUT_S, error_code, reason_of, settle
from headrace.model.failure import Failure

if TYPE_CHECKING:
    from confluent_kafka import IsolationLevel

    from headrace.cli.admin_nouns import AdminClient, OffsetSpec, TopicDescription

Partition = tuple[str, int]  # topic name, partition number


def topic_names(admin: "AdminClient") -> list[str]:
    return sorted(admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics)


def describe_topics(admin: "AdminClient", names: Iterable[str]) -> "list[TopicDescription]":
    """Each named topic, in the given order; Failure if one does not exist."""
    from confluent_kafka import KafkaError, KafkaException, TopicCollection

    wanted = list(dict.fromkeys(names))
    if not wanted:
        return []
    described = admin.describe_topics(TopicCollection(wanted), request_timeout=REQUEST_TIMEOUT_S)
    topics = []
    for name in wanted:
        try:
            topics.append(described[name].result(REQUEST_TIMEOUT_S + 5))
        except KafkaException as error:
            if error_code(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise Failure(missing_topic(name)) from None
            raise Failure(f"cannot look up topic {name}: {reason_of(error)}") from None
    return topics


def missing_topic(name: str) -> str:
    return f"topic {name} does not exist: `headrace topic list` shows those that do"


def matching_topics(admin: "AdminClient", patterns: Iterable[str]) -> list[str]:
    """The names themselves; one that starts with ^ is a regular expression that is matched with existing topics."""
    names: list[str] = []
    for pattern in patterns:
        if not pattern.startswith("^"):
            names.append(pattern)
            continue
        try:
            expression = re.compile(pattern)
        except re.error as error:
            raise Failure(f"{pattern!r} is not a regular expression: {error}") from None
        found = [name for name in topic_names(admin) if expression.search(name)]
        if not found:
            raise Failure(f"no topic matches {pattern}: `headrace topic list` shows those that exist")
        names.extend(found)
    return list(dict.fromkeys(names))


def partitions_of(admin: "AdminClient", names: Iterable[str], only: int | None = None) -> list[Partition]:
    """Every partition of the topics, or only partition `only` of each."""
    partitions: list[Partition] = []
    for topic in describe_topics(admin, names):
        numbers = sorted(partition.id for partition in topic.partitions)
        if only is not None and only not in numbers:
            raise Failure(f"topic {topic.name} has no partition {only}: it has 0 to {numbers[-1]}")
        partitions.extend((topic.name, number) for number in numbers if only in (None, number))
    return partitions


def start_offsets(admin: "AdminClient", partitions: Iterable[Partition]) -> dict[Partition, int]:
    from headrace.cli.admin_nouns import OffsetSpec

    return ask_offsets(admin, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]


def end_offsets(
    admin: "AdminClient", partitions: Iterable[Partition], isolation: "IsolationLevel | None" = None
) -> dict[Partition, int]:
    from headrace.cli.admin_nouns import OffsetSpec

    return ask_offsets(admin, partitions, OffsetSpec.latest(), isolation)  # type: ignore[no-untyped-call]


def offsets_at(admin: "AdminClient", partitions: Iterable[Partition], moment_ms: int) -> dict[Partition, int]:
    """The offset of the first record at or after the moment in each partition; the end offset where there is none."""
    from headrace.cli.admin_nouns import OffsetSpec

    found = ask_offsets(admin, partitions, OffsetSpec.for_timestamp(moment_ms))
    ends = end_offsets(admin, [partition for partition, offset in found.items() if offset < 0])
    return {partition: ends.get(partition, offset) for partition, offset in found.items()}


def ask_offsets(
    admin: "AdminClient",
    partitions: Iterable[Partition],
    spec: "OffsetSpec",
    isolation: "IsolationLevel | None" = None,
) -> dict[Partition, int]:
    from confluent_kafka import TopicPartition

    asked: dict[TopicPartition, OffsetSpec] = {TopicPartition(topic, number): spec for topic, number in partitions}
    if not asked:
        return {}
    options: dict[str, Any] = {"request_timeout": REQUEST_TIMEOUT_S}
    if isolation is not None:
        options["isolation_level"] = isolation
    return {
        (where.topic, where.partition): settle(
            answer, f"cannot read the offsets of {where.topic} partition {where.partition}"
        ).offset
        for where, answer in admin.list_offsets(asked, **options).items()
    }
