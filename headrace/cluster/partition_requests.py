"""Client requests for single partitions, elections and moves: checks them and plans the change. Pure.

Rejections are KafkaErrors with Kafka's codes. The controller is the only caller.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.cluster import election, reassignment
from headrace.cluster.change import Change, change_partition
from headrace.model.image import ClusterImage, PartitionImage
from headrace.wire.errors import ErrorCode, KafkaError


def known_partition(image: ClusterImage, topic: str, index: int) -> PartitionImage:
    partition, known = image.partition(topic, index), image.topics.get(topic)
    if known is not None and known.is_view:
        raise KafkaError(
            ErrorCode.invalid_request, f"topic {topic!r} is a view and has no partitions of its own: name its base"
        )
    if partition is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no partition {topic}-{index}")
    return partition


def preferred_election(image: ClusterImage, topic: str, index: int, controller_epoch: int) -> Change[PartitionImage]:
    """The preferred (first) replica becomes leader again."""
    partition = known_partition(image, topic, index)
    here = f"{topic}-{index}"
    if partition.leader == partition.replicas[0] and not election.needs_leader(partition, image.brokers):
        raise KafkaError(ErrorCode.election_not_needed, f"{here} is led by broker {partition.leader} as it should be")
    elected = election.preferred(partition, image.brokers)
    if elected is None:
        raise KafkaError(
            ErrorCode.preferred_leader_not_available,
            f"broker {partition.replicas[0]}, which should lead {here}, is not alive and in sync",
        )
    return change_partition(image, topic, elected, controller_epoch)


def move(
    image: ClusterImage,
    topic: str,
    index: int,
    target: Sequence[int] | None,
    controller_epoch: int,
    *,
    factor_may_change: bool,
) -> Change[PartitionImage]:
    """Move the partition to `target`; None cancels a move in progress."""
    partition = known_partition(image, topic, index)
    if target is None:
        moved = reassignment.cancelled(partition)
    else:
        moved = reassignment.begun(partition, target, image.brokers, factor_may_change=factor_may_change)
    return change_partition(image, topic, moved, controller_epoch)
