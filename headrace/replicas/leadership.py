"""What a leader knows of the other replicas of one partition in one epoch, and which ISR it should store next.

Owned by replicas.leader_role, for partitions that have other replicas. The arithmetic is in isr.py.

Invariant: one ISR change is in flight at a time. While it is, a record counts as committed only if all members of both
sets have it, the stored ISR and the wanted one, since it is not known which is in force. The change ends when a state
is seen that is newer than the one it was based on: changes are stored by compare-and-set on the version, so an older
change cannot take effect any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec.structs import replace

from headrace.model.image import BrokerImage, PartitionImage
from headrace.replicas.isr import (
    UNKNOWN,
    Follower,
    Limits,
    committed_end,
    falls_behind,
    is_near,
    may_commit,
    may_join,
)
from headrace.wire.errors import ErrorCode, KafkaError

Alive = Mapping[int, BrokerImage]
Joins = Sequence[tuple[int, int]]  # brokers, each with the epoch of its start that is meant


class IsrStore(Protocol):
    """Where a leader stores its ISR. The cluster room implements it."""

    def change(self, topic: str, partition: PartitionImage, joins: Joins) -> asyncio.Future[PartitionImage]:
        """Store this next state if the partition has not been changed since, and if the brokers that join still have
        the same broker epoch. The result is what is stored now, whoever wrote it. KafkaError(not_leader_or_follower):
        another leader or epoch is stored."""
        ...


class Leadership:
    def __init__(self, state: PartitionImage, broker_id: int, epoch_start: int, now_s: float) -> None:
        self.state = state
        self.epoch_start = epoch_start
        self.followers: dict[int, Follower] = {}
        self.wanted: PartitionImage | None = None  # an ISR change in flight
        self._broker_id = broker_id
        self.adopt(state, now_s)

    def adopt(self, state: PartitionImage, now_s: float) -> None:
        """Take over the stored state of the same leader epoch."""
        if self.wanted is not None and state.version > self.state.version:
            self.wanted = None
        self.state = state
        others = [broker_id for broker_id in state.replicas if broker_id != self._broker_id]
        self.followers = {
            broker_id: self.followers.get(broker_id) or Follower(broker_id, now_s) for broker_id in others
        }

    def fetched(
        self, broker_id: int, broker_epoch: int, offset: int, own_end: int, now_s: float, start: int = UNKNOWN
    ) -> None:
        """A replica has everything from `start` to before `offset`. Raises KafkaError if the broker is no replica, or
        fetches under an older broker epoch than before."""
        follower = self.followers.get(broker_id)
        if follower is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"broker {broker_id} has no replica here")
        if broker_epoch < follower.broker_epoch:
            raise KafkaError(
                ErrorCode.not_leader_or_follower,
                f"broker {broker_id} was started again: epoch {follower.broker_epoch} came after {broker_epoch}",
            )
        follower.fetched(broker_epoch, offset, own_end, now_s)
        follower.start_offset = start

    def lowest_start(self, own_start: int) -> int:
        """The lowest log start in the ISR: records before it are deleted on every member."""
        members = [self.followers[broker_id] for broker_id in self.state.isr if broker_id in self.followers]
        return min([own_start, *(follower.start_offset for follower in members)])

    def grew(self, before: int, now_s: float) -> None:
        """The log ended at `before` until now: a follower that has everything up to there was caught up until now."""
        for follower in self.followers.values():
            if follower.end_offset >= before:
                follower.caught_up_s = now_s

    # --- what is committed ------------------------------------------------------------------------------------------

    def committed_end(self, own_end: int, limits: Limits, alive: Alive, now_s: float) -> int | None:
        """How far the log is committed; None if nothing more can be, as things are."""
        if not may_commit(self.state, limits.min_isr):
            return None
        counted = {*self.state.isr, *(self.wanted.isr if self.wanted is not None else ())} - {self._broker_id}
        waited_for = [
            follower.broker_id
            for follower in self.followers.values()
            if follower.broker_id not in counted
            and _lives(follower, alive)
            and is_near(follower, self.epoch_start, own_end, limits, now_s)
        ]
        return committed_end(own_end, self.followers, counted, waited_for)

    # --- the ISR ----------------------------------------------------------------------------------------------------

    def change_due(
        self, own_end: int, high_watermark: int, limits: Limits, alive: Alive, now_s: float
    ) -> tuple[PartitionImage, Joins] | None:
        """The state to store next and the brokers that join in it; None if it is stored, or a change is in flight."""
        if self.wanted is not None:
            return None
        state = self.state
        members = dict(zip(state.isr, state.isr_epochs, strict=True))
        joins = [
            (follower.broker_id, follower.broker_epoch)
            for follower in self.followers.values()
            if members.get(follower.broker_id) != follower.broker_epoch
            and _lives(follower, alive)
            and may_join(follower, high_watermark, self.epoch_start)
            and not falls_behind(follower, own_end, limits, now_s)
        ]
        joining = {broker_id for broker_id, _ in joins}
        late = {
            follower.broker_id
            for follower in self.followers.values()
            if follower.broker_id in members
            and follower.broker_id not in joining
            and falls_behind(follower, own_end, limits, now_s)
        }
        # With enough in sync nobody outside the ISR may lead. That must be stored before anything is committed.
        to_clear = bool(state.elr) and may_commit(replace(state, elr=()), limits.min_isr)
        if not joins and not late and not to_clear:
            return None
        kept = {broker_id: epoch for broker_id, epoch in members.items() if broker_id not in late} | dict(joins)
        return replace(state, isr=tuple(kept), isr_epochs=tuple(kept.values())), joins


def _lives(follower: Follower, alive: Alive) -> bool:
    """The broker is alive, under the broker epoch under which it fetched."""
    found = alive.get(follower.broker_id)
    return found is not None and found.epoch == follower.broker_epoch
