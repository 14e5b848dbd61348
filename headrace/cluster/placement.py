"""Where the replicas of new partitions go. Pure.

Leaders are spread first: each partition's first replica goes to the broker that leads least in this plan. The other
replicas go where the fewest replicas are, on racks that do not hold the partition yet while there are any. Within one
plan, leaders per broker differ by at most one, and so do replicas where racks allow it. `turn` moves the start of the
ring, so that many topics of one partition do not pile up on the first broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.wire.errors import ErrorCode, KafkaError

Racks = Mapping[int, str | None]  # live broker -> its rack; a broker without one stands alone
Plan = list[tuple[int, ...]]  # per partition, its replicas; the first is the preferred leader


def place(partitions: int, replication_factor: int, racks: Racks, turn: int = 0) -> Plan:
    """KafkaError(INVALID_REPLICATION_FACTOR) if there are too few brokers."""
    if not 1 <= replication_factor <= len(racks):
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"a replication factor of {replication_factor} cannot be had with {len(racks)} live broker(s)",
        )
    ring = _ring(racks, turn)
    order = {broker: at for at, broker in enumerate(ring)}
    leads = dict.fromkeys(ring, 0)
    holds = dict.fromkeys(ring, 0)
    plan: Plan = []
    for _ in range(partitions):
        leader = min(ring, key=lambda broker: (leads[broker], holds[broker], order[broker]))
        replicas = [leader]
        while len(replicas) < replication_factor:
            used = {_rack_of(broker, racks) for broker in replicas}
            free = [broker for broker in ring if broker not in replicas]
            replicas.append(
                min(
                    free,
                    key=lambda broker: (_rack_of(broker, racks) in used, holds[broker], -leads[broker], order[broker]),
                )
            )
        leads[leader] += 1
        for broker in replicas:
            holds[broker] += 1
        plan.append(tuple(replicas))
    return plan


def _ring(racks: Racks, turn: int) -> list[int]:
    """The brokers, racks taking turns, so that neighbours stand on different racks."""
    by_rack: dict[str | int, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(_rack_of(broker, racks), []).append(broker)
    ring: list[int] = []
    for depth in range(max(map(len, by_rack.values()), default=0)):
        ring += [brokers[depth] for brokers in by_rack.values() if depth < len(brokers)]
    start = turn % len(ring) if ring else 0
    return ring[start:] + ring[:start]


def _rack_of(broker: int, racks: Racks) -> str | int:
    rack = racks[broker]
    return broker if rack is None else rack


def check_manual(assignments: Mapping[int, Sequence[int]], racks: Racks, first: int = 0) -> Plan:
    """A plan that a client made, for partitions from `first` on; KafkaError(INVALID_REPLICA_ASSIGNMENT) if unusable."""
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
        if plan and len(replicas) != len(plan[0]):
            raise unusable(f"partition {index} has {len(replicas)} replicas, others have {len(plan[0])}")
        plan.append(replicas)
    return plan


def unusable(why: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_replica_assignment, f"the replica assignment cannot be used: {why}")
