"""Reassignment of partitions to other brokers (KIP-455): which requests are allowed, and the steps of a move.

While a partition moves, its replica list is the new replicas followed by the old ones that will be removed; `adding`
and `removing` say which is which. New replicas follow the leader like any other, and join the ISR when they have caught
up. When all target replicas are in the ISR, one write removes the old ones: before that write the old set has
everything, after it the new set has. Pure; the controller starts a move, tending takes the last step.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from headrace.cluster import election
from headrace.cluster.election import Alive
from headrace.cluster.placement import unusable
from headrace.model.image import PartitionImage
from headrace.wire.errors import ErrorCode, KafkaError


def begun(partition: PartitionImage, target: Sequence[int], alive: Alive, *, factor_may_change: bool) -> PartitionImage:
    """The partition with a move to `target` started; the new target replaces that of a move in progress."""
    if not target:
        raise unusable("a partition needs at least one replica")
    if len(set(target)) != len(target):
        raise unusable(f"a broker is named twice: {list(target)}")
    for broker in target:
        if broker not in alive:
            raise unusable(f"broker {broker} is not alive")
    before = original(partition)
    if not factor_may_change and len(target) != len(before):
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"the partition has {len(before)} replicas and would have {len(target)}; the request does not allow that",
        )
    removing = tuple(broker for broker in before if broker not in target)
    adding = tuple(broker for broker in target if broker not in before)
    return _narrowed(replace(partition, replicas=tuple(target) + removing, adding=adding, removing=removing))


def cancelled(partition: PartitionImage) -> PartitionImage:
    """Back to the original replicas, first those that the move would have kept; KafkaError if it is not moving."""
    if not moves(partition):
        raise KafkaError(ErrorCode.no_reassignment_in_progress, "the partition is not being moved")
    return _narrowed(replace(partition, replicas=original(partition), adding=(), removing=()))


def advanced(partition: PartitionImage) -> PartitionImage:
    """The completed move, if all target replicas are in sync; otherwise the same object."""
    target = tuple(broker for broker in partition.replicas if broker not in partition.removing)
    if not moves(partition) or not set(target) <= set(partition.isr):
        return partition
    return _narrowed(replace(partition, replicas=target, adding=(), removing=()))


def moves(partition: PartitionImage) -> bool:
    return bool(partition.adding or partition.removing)


def original(partition: PartitionImage) -> tuple[int, ...]:
    """The replicas before the move, or the current ones if there is no move."""
    return tuple(broker for broker in partition.replicas if broker not in partition.adding)


def _narrowed(partition: PartitionImage) -> PartitionImage:
    """Without brokers that are no longer replicas; if the leader is one of them, another ISR member becomes leader.

    KafkaError if no replica would be left that is known to have all committed records.
    """
    kept = [entry for entry in election.entries(partition) if entry[0] in partition.replicas]
    narrow = replace(
        partition,
        isr=tuple(broker for broker, _ in kept),
        isr_epochs=tuple(epoch for _, epoch in kept),
        elr=tuple(entry for entry in partition.elr if entry[0] in partition.replicas),
        last_known=tuple(broker for broker in partition.last_known if broker in partition.replicas),
    )
    everybody = (partition.isr, partition.elr, partition.last_known)
    if not narrow.isr and (narrow.isr, narrow.elr, narrow.last_known) != everybody:
        raise KafkaError(
            ErrorCode.eligible_leaders_not_available,
            f"none of the replicas {list(partition.replicas)} is in sync: nobody could lead without the others",
        )
    if narrow.leader in narrow.replicas or not narrow.isr:
        return narrow
    leader = next(broker for broker in narrow.replicas if broker in narrow.isr)
    return replace(narrow, leader=leader, leader_epoch=narrow.leader_epoch + 1)
