"""Who leads a partition. Pure: from the state as stored and who is alive to the next state, or to none.

The in-sync replicas have every acknowledged record, so a leader comes from them. Members that went on living since
they were in sync come first; one that was restarted meanwhile leads only if none of those is there, and drops out of
the in-sync set otherwise, because what it had not written to disk may be gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.model.image import NO_LEADER, PartitionImage

Alive = Mapping[int, int]  # broker id -> broker epoch


def needs_leader(partition: PartitionImage, alive: Alive) -> bool:
    """There is no leader, or it is not the same start of that broker that was elected."""
    return partition.leader == NO_LEADER or alive.get(partition.leader) != _epoch_of(partition, partition.leader)


def elect(partition: PartitionImage, alive: Alive, *, unclean: bool = False) -> PartitionImage | None:
    """The state after an election, None if it would change nothing.

    `unclean` lets a replica lead that may lack acknowledged records, when no in-sync one is alive.
    """
    unbroken = [
        broker
        for broker in partition.replicas
        if broker in partition.isr and broker in alive and alive[broker] == _epoch_of(partition, broker)
    ]
    returned = [broker for broker in partition.replicas if broker in partition.isr and broker in alive]
    others = [broker for broker in partition.replicas if broker in alive] if unclean else []
    for leader in (*unbroken, *returned, *others):
        return _led_by(partition, leader, unbroken or [leader], alive)
    if partition.leader == NO_LEADER:
        return None
    return replace(partition, leader=NO_LEADER, leader_epoch=partition.leader_epoch + 1)


def elect_preferred(partition: PartitionImage, alive: Alive) -> PartitionImage | None:
    """The first replica of the plan leads, if it is alive and in sync; None if it cannot."""
    preferred = partition.replicas[0]
    if preferred not in partition.isr or alive.get(preferred) != _epoch_of(partition, preferred):
        return None
    return replace(partition, leader=preferred, leader_epoch=partition.leader_epoch + 1)


def first_state(index: int, replicas: tuple[int, ...], alive: Alive) -> PartitionImage:
    """A new partition: empty, so every live replica is in sync, and the first of them leads."""
    isr = tuple(broker for broker in replicas if broker in alive)
    epochs = tuple(alive[broker] for broker in isr)
    return PartitionImage(index, replicas, isr, isr[0] if isr else NO_LEADER, 0, 0, epochs)


def _led_by(partition: PartitionImage, leader: int, isr: list[int], alive: Alive) -> PartitionImage:
    return replace(
        partition,
        leader=leader,
        leader_epoch=partition.leader_epoch + 1,
        isr=tuple(isr),
        isr_epochs=tuple(alive[broker] for broker in isr),
    )


def _epoch_of(partition: PartitionImage, broker: int) -> int | None:
    return dict(zip(partition.isr, partition.isr_epochs, strict=True)).get(broker)
