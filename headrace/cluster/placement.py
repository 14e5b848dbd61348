"""Where the replicas of new partitions are placed. Pure.

Within a topic, the numbers of leaders and of replicas per broker differ by at most one. Which brokers get the extra one
depends on what they already lead and hold, so that many small topics do not pile up on the same brokers. Replicas of a
partition are placed on different racks if there are enough; this takes precedence over equal numbers of replicas.

First every broker gets a quota. Then the partitions are assigned, each to the brokers with the largest remaining quota.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct, field

from headrace.model.image import TopicImage
from headrace.wire.errors import ErrorCode, KafkaError

Racks = Mapping[int, str | None]  # live broker -> its rack; a broker without a rack counts as its own rack
Plan = list[tuple[int, ...]]  # per partition, its replicas; the first is the preferred leader


class Load(Struct, frozen=True):
    """What brokers already have: partitions of which they are the preferred leader, and replicas."""

    leads: Mapping[int, int] = field(default_factory=dict)
    holds: Mapping[int, int] = field(default_factory=dict)


def load_of(topics: Iterable[TopicImage]) -> Load:
    leads: dict[int, int] = {}
    holds: dict[int, int] = {}
    for topic in topics:
        for partition in topic.partitions:
            leads[partition.replicas[0]] = leads.get(partition.replicas[0], 0) + 1
            for broker in partition.replicas:
                holds[broker] = holds.get(broker, 0) + 1
    return Load(leads, holds)


def with_more(load: Load, brokers: Iterable[int]) -> Load:
    """With one more replica on each of these."""
    return Load(load.leads, {**load.holds, **{broker: load.holds.get(broker, 0) + 1 for broker in brokers}})


def place(partitions: int, replication_factor: int, racks: Racks, load: Load | None = None) -> Plan:
    """KafkaError(INVALID_REPLICATION_FACTOR) if there are too few brokers."""
    if not 1 <= replication_factor <= len(racks):
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"a replication factor of {replication_factor} cannot be had with {len(racks)} live broker(s)",
        )
    leads, holds = _quotas(partitions, replication_factor, racks, load or Load())
    follows = {broker: holds[broker] - leads[broker] for broker in racks}
    plan: Plan = []
    for _ in range(partitions):
        leader = min(sorted(racks), key=lambda broker: (-leads[broker], follows[broker]))
        leads[leader] -= 1
        replicas = [leader]
        while len(replicas) < replication_factor:
            broker = _next_replica(replicas, racks, lambda broker: (-follows[broker], -leads[broker]))
            follows[broker] -= 1
            replicas.append(broker)
        plan.append(tuple(replicas))
    return plan


def grown(replicas: Sequence[int], replication_factor: int, racks: Racks, load: Load) -> tuple[int, ...]:
    """These replicas plus the requested number of others, on the brokers with the fewest."""
    more = list(replicas)
    while len(more) < min(replication_factor, len(racks.keys() | set(replicas))):
        more.append(_next_replica(more, racks, lambda broker: (load.holds.get(broker, 0), 0)))
    return tuple(more)


def _quotas(
    partitions: int, replication_factor: int, racks: Racks, load: Load
) -> tuple[dict[int, int], dict[int, int]]:
    """How many partitions each broker should lead, and how many it should hold."""
    brokers = sorted(racks)

    def dealt(total: int, order: Callable[[int], tuple[int, ...]]) -> dict[int, int]:
        each, more = divmod(total, len(brokers))
        first = sorted(brokers, key=order)[:more]
        return {broker: each + (broker in first) for broker in brokers}

    leads = dealt(partitions, lambda broker: (load.leads.get(broker, 0), load.holds.get(broker, 0)))
    each = partitions * replication_factor // len(brokers)
    holds = dealt(  # a leader also holds a replica
        partitions * replication_factor,
        lambda broker: (leads[broker] <= each, load.holds.get(broker, 0), -leads[broker]),
    )
    return leads, holds


def _next_replica(replicas: Sequence[int], racks: Racks, order: Callable[[int], tuple[int, int]]) -> int:
    """The first broker in this order on a rack that is not used yet, if there is one."""
    used = {_rack_of(broker, racks) for broker in replicas}
    free = [broker for broker in sorted(racks) if broker not in replicas]
    return min(free, key=lambda broker: (_rack_of(broker, racks) in used, *order(broker)))


def _rack_of(broker: int, racks: Racks) -> str | int:
    rack = racks.get(broker)
    return broker if rack is None else rack


def check_manual(
    assignments: Mapping[int, Sequence[int]], racks: Racks, first: int = 0, factor: int | None = None
) -> Plan:
    """A client's own assignment, for partitions from `first` on, with as many replicas as the existing ones have.

    KafkaError(INVALID_REPLICA_ASSIGNMENT) if it is unusable.
    """
    if sorted(assignments) != list(range(first, first + len(assignments))):
        raise unusable(f"partitions must be numbered {first} to {first + len(assignments) - 1} without a gap")
    plan: Plan = []
    for index in sorted(assignments):
        replicas = tuple(assignments[index])
        if not replicas:
            raise unusable(f"partition {index} has no replica")
        if len(set(replicas)) != len(replicas):
            raise unusable(f"partition {index} names a broker twice: {list(replicas)}")
        unknown = [broker for broker in replicas if broker not in racks]
        if unknown:
            raise unusable(f"partition {index} names broker {unknown[0]}, which is not alive")
        factor = len(replicas) if factor is None else factor
        if len(replicas) != factor:
            raise unusable(f"partition {index} has {len(replicas)} replicas, others have {factor}")
        plan.append(replicas)
    return plan


def unusable(why: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_replica_assignment, f"the replica assignment cannot be used: {why}")
