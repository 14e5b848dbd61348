"""A consumer group as it will be once the records of a decision are applied.

`decide` must not apply records that are not in the journal yet, but its reply must reflect the state after them: a
member that joins gets its part of the new target assignment. So a decision works on a draft: each `put` encodes a
record and applies it to a copy. The copy is made at the first change, so the heartbeat of a stable member needs none.
"""

from __future__ import annotations

from headrace.coordinators.groups.consumer_group import ConsumerGroup
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
    Subscription,
    Value,
    consumer_key,
    consumer_value,
)
from headrace.coordinators.groups.reconciliation import CurrentAssignment
from headrace.coordinators.shard import Outcome, Record


class Draft:
    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.records: list[Record] = []
        self._copied = False

    def _write(self, kind: int, name: str | None, value: Value | None) -> None:
        key = ConsumerKey(kind, self.group.id, name)
        self.records.append((consumer_key(key), None if value is None else consumer_value(value)))
        if not self._copied:
            self.group, self._copied = self.group.copy(), True
        if kind != EPOCH or value is not None:
            self.group.apply(key, value)

    def put_epoch(self, epoch: int, metadata_hash: int) -> None:
        self._write(EPOCH, None, GroupEpoch(epoch, metadata_hash))

    def put_plan_epoch(self, epoch: int, now_ms: int) -> None:
        self._write(PLAN, None, PlanEpoch(epoch, now_ms))

    def put_member(self, member_id: str, subscription: Subscription) -> None:
        self._write(SUBSCRIPTION, member_id, subscription)

    def put_current(self, member_id: str, current: CurrentAssignment) -> None:
        self._write(CURRENT, member_id, current)

    def put(self, kind: int, name: str, value: Value) -> None:
        self._write(kind, name, value)

    def remove_pattern(self, pattern: str) -> None:
        self._write(PATTERN, pattern, None)

    def remove_member(self, member_id: str) -> None:
        group = self.group
        if member_id in group.currents:
            self._write(CURRENT, member_id, None)
        if member_id in group.targets:
            self._write(TARGET, member_id, None)
        self._write(SUBSCRIPTION, member_id, None)

    def remove_group(self) -> None:
        for member_id in list(self.group.members):
            self.remove_member(member_id)
        for pattern in list(self.group.patterns):
            self.remove_pattern(pattern)
        self._write(PLAN, None, None)
        self._write(EPOCH, None, None)

    def carry_into(self, outcome: Outcome) -> None:
        """The decision is complete: its records go into the outcome."""
        outcome.records += self.records
        self.records = []
