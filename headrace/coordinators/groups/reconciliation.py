"""How one member gets from its current to its target assignment (KIP-848): a pure step function.

                       the plan takes partitions away
       STABLE ───────────────────────────────────────────> UNREVOKED
         ^ ^                                                │    │
         │ └────────────────── it let go of them ───────────┘    │ it let go of them, others have not yet
         │                                                       v
         └────────────── all that it waits for is free ─────UNRELEASED

A member never gets a partition before its previous owner has revoked it. A member keeps working on everything that it
keeps: only a member that loses partitions has to act. `consumer_membership.py` takes one step per heartbeat.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from enum import IntEnum

from msgspec import Struct, field

Parts = Mapping[uuid.UUID, frozenset[int]]  # partitions by topic; no topic without partitions
Held = Mapping[uuid.UUID, Mapping[int, int]]  # the same, each partition with the epoch in which it was given

LEFT_FOR_NOW = -2  # the epoch of a static member that has left and may come back


class MemberState(IntEnum):
    """The numbers are those in the log."""

    STABLE = 0  # has its target assignment of its epoch
    UNREVOKED = 1  # has not revoked all partitions yet
    UNRELEASED = 2  # waits for partitions that others have not revoked yet


class CurrentAssignment(Struct, frozen=True):
    """The current assignment of a member, as the coordinator knows it."""

    epoch: int = 0
    previous_epoch: int = -1  # a heartbeat may carry it if the response with the new one was lost
    state: MemberState = MemberState.STABLE
    assigned: Held = field(default_factory=dict)
    revoking: Held = field(default_factory=dict)

    def reached(self, plan_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == plan_epoch

    def given_epoch(self, topic_id: uuid.UUID, partition: int) -> int | None:
        """The epoch in which this member got the partition; None: it does not have it."""
        for held in (self.assigned, self.revoking):
            if partition in held.get(topic_id, ()):
                return held[topic_id][partition]
        return None


def parts_of(held: Held) -> Parts:
    return {topic_id: frozenset(partitions) for topic_id, partitions in held.items()}


def is_part_of(owned: Parts, held: Held) -> bool:
    return all(partitions <= held.get(topic_id, {}).keys() for topic_id, partitions in owned.items())


def next_step(
    current: CurrentAssignment,
    plan_epoch: int,
    target: Parts,
    owned: Parts | None,
    is_free: Callable[[uuid.UUID, int], bool],
) -> CurrentAssignment:
    """One step towards `target`, the member's part of the target assignment of `plan_epoch`.

    `owned` is what the member reports that it owns, None if it does not report; `is_free` tells whether no other member
    has a partition.
    """
    if current.reached(plan_epoch):
        return current
    epoch = current.epoch
    if current.state is MemberState.UNREVOKED:
        if _still_has(owned, current.revoking):
            return current
        epoch += 1  # it has completed its epoch, although the target may require more
    kept: dict[uuid.UUID, dict[int, int]] = {}
    revoking: dict[uuid.UUID, dict[int, int]] = {}
    for topic_id, held in current.assigned.items():
        wanted = target.get(topic_id, frozenset())
        for into, partitions in ((kept, held.keys() & wanted), (revoking, held.keys() - wanted)):
            if partitions:
                into[topic_id] = {partition: held[partition] for partition in partitions}
    if revoking and _still_has(owned, revoking):
        return _stepped(current, epoch, MemberState.UNREVOKED, kept, revoking)
    waits = False
    for topic_id, wanted in target.items():
        for partition in wanted - kept.get(topic_id, {}).keys():
            if is_free(topic_id, partition):
                kept.setdefault(topic_id, {})[partition] = plan_epoch
            else:
                waits = True
    state = MemberState.UNRELEASED if waits else MemberState.STABLE
    return _stepped(current, plan_epoch, state, kept, {})


def _stepped(
    current: CurrentAssignment, epoch: int, state: MemberState, assigned: Held, revoking: Held
) -> CurrentAssignment:
    previous_epoch = current.previous_epoch if epoch == current.epoch else current.epoch
    return CurrentAssignment(epoch, previous_epoch, state, assigned, revoking)


def _still_has(owned: Parts | None, revoking: Held) -> bool:
    if owned is None:
        return True
    return any(not partitions.isdisjoint(revoking.get(topic_id, ())) for topic_id, partitions in owned.items())
