"""Requests about consumer groups: state, members, offsets.

Called by the group commands. Invariant: a missing group is a Failure, never an empty result; Kafka itself describes an
unknown group as dead.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace.cli.connection import REQUEST_TIMEOUT_S, error_code, plain_words, reason_of, settle
from headrace.cli.topics import Partition
from headrace.model.failure import Failure

if TYPE_CHECKING:
    from headrace.cli.admin_nouns import AdminClient, ConsumerGroupDescription


def state_name(state: Any) -> str:
    """The client's `STABLE` or `PREPARING_REBALANCING`, as Kafka's tools show it."""
    return str(state.name).replace("_", " ").lower()


def find_group(admin: "AdminClient", name: str) -> "ConsumerGroupDescription | None":
    """The group, or None if there is none of that name."""
    from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException

    answer = admin.describe_consumer_groups([name], request_timeout=REQUEST_TIMEOUT_S)[name]
    try:
        group: ConsumerGroupDescription = answer.result(REQUEST_TIMEOUT_S + 5)
    except KafkaException as error:
        if error_code(error) == KafkaError.GROUP_ID_NOT_FOUND:
            return None
        raise Failure(f"cannot describe group {name}: {reason_of(error)}") from None
    return None if group.state == ConsumerGroupState.DEAD else group


def missing_group(name: str) -> str:
    return f"group {name} does not exist: `headrace group list` shows those that do"


def committed_offsets(admin: "AdminClient", group: str) -> dict[Partition, int]:
    """All committed offsets of the group."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    answer = admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group)], request_timeout=REQUEST_TIMEOUT_S
    )[group]
    found = settle(answer, f"cannot read the offsets of group {group}").topic_partitions
    return {(where.topic, where.partition): where.offset for where in found if where.offset >= 0}


def commit_offsets(admin: "AdminClient", group: str, offsets: dict[Partition, int]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    positions = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
    answer = admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, positions)], request_timeout=REQUEST_TIMEOUT_S
    )[group]
    for where in settle(answer, f"cannot change the offsets of group {group}").topic_partitions:
        if where.error is not None:
            raise Failure(
                f"cannot change the offset of group {group} in {where.topic} partition {where.partition}: "
                f"{plain_words(where.error)}"
            )


def delete_groups(admin: "AdminClient", names: Iterable[str]) -> None:
    for name, answer in admin.delete_consumer_groups(list(names), request_timeout=REQUEST_TIMEOUT_S).items():
        settle(answer, f"cannot delete group {name}")
