"""One share group (KIP-932): members, the plan, what each member was told to have, and which topics have state.

    Empty ──join──> Stable ──everybody left──> Empty

All state comes from the journal: `apply` is the only way to change it, for records that were just written, for the
whole journal after a restart, and for drafts. Invariant: a partition is in a plan only while its state is initialized.
Several members may have the same partition, so unlike in a consumer group nobody waits for what others let go of.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TypeVar

from headrace.coordinators.groups.consumer_records import ConsumerKey, GroupEpoch, consumer_key
from headrace.coordinators.groups.reconciliation import Parts
from headrace.coordinators.groups.share_records import (
    SHARE_CURRENT,
    SHARE_EPOCH,
    SHARE_MEMBER,
    SHARE_PLAN,
    SHARE_STATES,
    SHARE_TARGET,
    ShareCurrent,
    SharedTopics,
    ShareMember,
    SharePlanEpoch,
    ShareValue,
    share_value,
)
from headrace.coordinators.shard import Outcome, Record

NOTHING_YET = ShareCurrent()
SHARE = "share"
T = TypeVar("T")


class ShareGroupState(Enum):
    """The names are those that Kafka's tools show."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareGroup:
    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.epoch = 0  # rises whenever a new plan is needed, and before a state is initialized
        self.metadata_hash = 0
        self.plan_epoch = 0  # the epoch that the plan was made for
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Parts] = {}
        self.currents: dict[str, ShareCurrent] = {}
        self.topics = SharedTopics()

    def copy(self) -> ShareGroup:
        """An independent copy; values are never changed in place, so they are shared."""
        twin = ShareGroup(self.id)
        twin.epoch, twin.metadata_hash, twin.plan_epoch = self.epoch, self.metadata_hash, self.plan_epoch
        twin.members, twin.targets = dict(self.members), dict(self.targets)
        twin.currents, twin.topics = dict(self.currents), self.topics
        return twin

    def apply(self, key: ConsumerKey, value: ShareValue | None) -> None:
        """A record of this group; None removes."""
        name = key.name or ""
        if key.type == SHARE_EPOCH:
            assert isinstance(value, GroupEpoch)  # the owner removes the group as a whole
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
        elif key.type == SHARE_PLAN:
            self.plan_epoch = value.epoch if isinstance(value, SharePlanEpoch) else 0
        elif key.type == SHARE_STATES:
            self.topics = value if isinstance(value, SharedTopics) else SharedTopics()
        elif key.type == SHARE_MEMBER:
            _put(self.members, name, value if isinstance(value, ShareMember) else None)
        elif key.type == SHARE_CURRENT:
            _put(self.currents, name, value if isinstance(value, ShareCurrent) else None)
        elif key.type == SHARE_TARGET:
            _put(self.targets, name, value if isinstance(value, dict) else None)

    # --- questions --------------------------------------------------------------------------------------------------

    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def current(self, member_id: str) -> ShareCurrent:
        return self.currents.get(member_id, NOTHING_YET)

    def subscriptions(self) -> frozenset[str]:
        """All topics that its members subscribe to."""
        return frozenset(name for member in self.members.values() for name in member.topics)

    def awaits(self, topics: Iterable[str]) -> bool:
        """Whether one of these topics is being initialized for the first time."""
        names, initialized = set(topics), self.topics.initialized
        return any(
            topic.name in names for topic_id, topic in self.topics.initializing.items() if topic_id not in initialized
        )


def _put(values: dict[str, T], name: str, value: T | None) -> None:
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value


class ShareDraft:
    """A share group as it will be once the records of a decision are applied; see draft.py for why."""

    def __init__(self, group: ShareGroup) -> None:
        self.group = group
        self.records: list[Record] = []
        self._copied = False

    def _write(self, kind: int, name: str | None, value: ShareValue | None) -> None:
        key = ConsumerKey(kind, self.group.id, name)
        self.records.append((consumer_key(key), None if value is None else share_value(value)))
        if not self._copied:
            self.group, self._copied = self.group.copy(), True
        if kind != SHARE_EPOCH or value is not None:
            self.group.apply(key, value)

    def put_epoch(self, epoch: int, metadata_hash: int) -> None:
        self._write(SHARE_EPOCH, None, GroupEpoch(epoch, metadata_hash))

    def put_plan_epoch(self, epoch: int) -> None:
        self._write(SHARE_PLAN, None, SharePlanEpoch(epoch))

    def put_member(self, member_id: str, member: ShareMember) -> None:
        self._write(SHARE_MEMBER, member_id, member)

    def put_target(self, member_id: str, parts: Parts) -> None:
        self._write(SHARE_TARGET, member_id, parts)

    def put_current(self, member_id: str, current: ShareCurrent) -> None:
        self._write(SHARE_CURRENT, member_id, current)

    def put_topics(self, topics: SharedTopics) -> None:
        self._write(SHARE_STATES, None, topics)

    def remove_member(self, member_id: str) -> None:
        if member_id in self.group.currents:
            self._write(SHARE_CURRENT, member_id, None)
        if member_id in self.group.targets:
            self._write(SHARE_TARGET, member_id, None)
        self._write(SHARE_MEMBER, member_id, None)

    def remove_group(self) -> None:
        for member_id in list(self.group.members):
            self.remove_member(member_id)
        self._write(SHARE_STATES, None, None)
        self._write(SHARE_PLAN, None, None)
        self._write(SHARE_EPOCH, None, None)

    def carry_into(self, outcome: Outcome) -> None:
        """The decision is complete: its records go into the outcome."""
        outcome.records += self.records
        self.records = []
