"""One consumer group (KIP-848): members, the target assignment, and the current assignment of each member.

    Empty ──join──> Assigning ──a plan is made──> Reconciling ──everybody has their part──> Stable
                        ^                              │                                      │
                        └── join, leave, expiry, other topics: the group's epoch rises ───────┘

All state comes from the journal: `apply` is the only way to change it, for records that were just written, for the
whole journal after a restart, and for drafts. Invariant: a partition has at most one owner, which is the member that
has it assigned or has not revoked it yet.
"""

from __future__ import annotations

import uuid
from collections import Counter
from enum import Enum

from headrace.coordinators.groups.consumer_records import (
    CURRENT,
    EPOCH,
    PATTERN,
    PLAN,
    SUBSCRIPTION,
    TARGET,
    ConsumerKey,
    GroupEpoch,
    PlanEpoch,
    ResolvedPattern,
    Subscription,
    Value,
)
from headrace.coordinators.groups.reconciliation import CurrentAssignment, Parts
from headrace.wire.errors import ErrorCode

NOTHING_YET = CurrentAssignment()


class ConsumerState(Enum):
    """The names are those that Kafka's tools show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup:
    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.epoch = 0  # rises whenever a new plan is needed
        self.metadata_hash = 0
        self.plan_epoch = 0  # the epoch that the plan was made for
        self.plan_ms = 0
        self.members: dict[str, Subscription] = {}
        self.targets: dict[str, Parts] = {}
        self.currents: dict[str, CurrentAssignment] = {}
        self.patterns: dict[str, ResolvedPattern] = {}
        self.instances: dict[str, str] = {}  # static members: instance id -> member id
        self._owners: dict[uuid.UUID, dict[int, str]] = {}

    def copy(self) -> ConsumerGroup:
        """An independent copy; values are never changed in place, so they are shared."""
        twin = ConsumerGroup(self.id)
        twin.epoch, twin.metadata_hash = self.epoch, self.metadata_hash
        twin.plan_epoch, twin.plan_ms = self.plan_epoch, self.plan_ms
        twin.members, twin.targets = dict(self.members), dict(self.targets)
        twin.currents, twin.patterns = dict(self.currents), dict(self.patterns)
        twin.instances = dict(self.instances)
        twin._owners = {topic_id: dict(owners) for topic_id, owners in self._owners.items()}
        return twin

    # --- the way in -------------------------------------------------------------------------------------------------

    def apply(self, key: ConsumerKey, value: Value | None) -> None:
        """A record of this group; None removes."""
        name = key.name or ""
        if key.type == EPOCH:
            assert isinstance(value, GroupEpoch)  # the owner removes the group as a whole
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
        elif key.type == PLAN:
            self.plan_epoch, self.plan_ms = (value.epoch, value.assigned_ms) if isinstance(value, PlanEpoch) else (0, 0)
        elif key.type == SUBSCRIPTION:
            self._set_member(name, value if isinstance(value, Subscription) else None)
        elif key.type == CURRENT:
            self._set_current(name, value if isinstance(value, CurrentAssignment) else None)
        elif key.type == TARGET:
            if isinstance(value, dict):
                self.targets[name] = value
            else:
                self.targets.pop(name, None)
        elif key.type == PATTERN:
            if isinstance(value, ResolvedPattern):
                self.patterns[name] = value
            else:
                self.patterns.pop(name, None)

    def _set_member(self, member_id: str, subscription: Subscription | None) -> None:
        before = self.members.pop(member_id, None)
        instance_id = before.instance_id if before is not None else None
        if instance_id is not None and self.instances.get(instance_id) == member_id:
            del self.instances[instance_id]
        if subscription is not None:
            self.members[member_id] = subscription
            if subscription.instance_id is not None:
                self.instances[subscription.instance_id] = member_id

    def _set_current(self, member_id: str, current: CurrentAssignment | None) -> None:
        before = self.currents.pop(member_id, None)
        if before is not None:
            for held in (before.assigned, before.revoking):
                for topic_id, partitions in held.items():
                    owners = self._owners.get(topic_id, {})
                    for partition in partitions:
                        if owners.get(partition) == member_id:
                            del owners[partition]
                    if not owners:
                        self._owners.pop(topic_id, None)
        if current is not None:
            self.currents[member_id] = current
            for held in (current.assigned, current.revoking):
                for topic_id, partitions in held.items():
                    self._owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member_id))

    # --- questions --------------------------------------------------------------------------------------------------

    def state(self) -> ConsumerState:
        if not self.members:
            return ConsumerState.EMPTY
        if self.epoch > self.plan_epoch:
            return ConsumerState.ASSIGNING
        if all(self.current(member_id).reached(self.plan_epoch) for member_id in self.members):
            return ConsumerState.STABLE
        return ConsumerState.RECONCILING

    def current(self, member_id: str) -> CurrentAssignment:
        return self.currents.get(member_id, NOTHING_YET)

    def owner(self, topic_id: uuid.UUID, partition: int) -> str | None:
        return self._owners.get(topic_id, {}).get(partition)

    def stranger(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        """Why this is no member of the group, or None when it is one."""
        if instance_id is not None:
            known = self.instances.get(instance_id)
            if known is None:
                return ErrorCode.unknown_member_id
            if known != member_id:
                return ErrorCode.fenced_instance_id
        return None if member_id in self.members else ErrorCode.unknown_member_id

    def topics_of(self, member: Subscription) -> frozenset[str]:
        """The names that a member subscribes to, also by its pattern."""
        names = frozenset(member.topics)
        if member.pattern is not None and member.pattern in self.patterns:
            return names | self.patterns[member.pattern].topics
        return names

    def subscriptions(self) -> frozenset[str]:
        """All topics that its members subscribe to."""
        by_name = {name for member in self.members.values() for name in member.topics}
        return frozenset(by_name.union(*(pattern.topics for pattern in self.patterns.values())))

    def preferred_assignor(self) -> str | None:
        """The one that most members name; None when nobody names one."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return max(votes, key=lambda name: votes[name]) if votes else None

    def classic_members(self) -> dict[str, Subscription]:
        return {member_id: member for member_id, member in self.members.items() if member.classic is not None}
