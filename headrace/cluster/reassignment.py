"""Partitions move to other brokers (KIP-455): what may be asked for, and the steps from one set of replicas to another.

While a partition moves, its replicas are the new ones followed by the old ones that will go; `adding` and `removing`
say which is which. New replicas follow the leader like any other, and join the ISR when they have caught up. When
every replica that is to stay is in it, one write takes the old ones out: before that write the old set has everything,
after it the new one has. Pure; the controller asks, tending takes the last step.
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
    """On its way to `target`; a partition that is moving already is turned round to the new one."""
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
    """Back to the replicas it had, those first that the move would have kept; KafkaError if it does not move."""
    if not moves(partition):
        raise KafkaError(ErrorCode.no_reassignment_in_progress, "the partition is not being moved")
    return _narrowed(replace(partition, replicas=original(partition), adding=(), removing=()))


def advanced(partition: PartitionImage) -> PartitionImage:
    """Arrived, if everybody who is to stay is in sync; the very same otherwise."""
    target = tuple(broker for broker in partition.replicas if broker not in partition.removing)
    if not moves(partition) or not set(target) <= set(partition.isr):
        return partition
    return _narrowed(replace(partition, replicas=target, adding=(), removing=()))


def moves(partition: PartitionImage) -> bool:
    return bool(partition.adding or partition.removing)


def original(partition: PartitionImage) -> tuple[int, ...]:
    """The replicas before the move, or those there are."""
    return tuple(broker for broker in partition.replicas if broker not in partition.adding)


def _narrowed(partition: PartitionImage) -> PartitionImage:
    """Without anybody who is no replica any more; if that was the leader, another one of the ISR leads.

    KafkaError if nobody would be left who is known to have everything that was committed.
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
