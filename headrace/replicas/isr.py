"""The arithmetic of replication: how far a partition is committed, which replicas are in sync, which lag. Pure.

A leader keeps one `Follower` for each other replica; the functions here derive the rest. Called by replicas.leadership;
no clock and no disk here.

The rules, each of which prevents the loss of an acknowledged record:

- A record is committed when every replica has it that may become leader: all members of the stored ISR, and of a change
  in flight (its additions may be in force already, its removals may not).
- Only what a follower has reported to the leader of this epoch counts: before that, its log may diverge.
- Nothing is committed while the ISR is smaller than min.insync.replicas, or while a replica outside of it may still be
  elected (the eligible leader replicas, KIP-966), since that one would not have the record.
- A follower joins when it has all that is committed, and all that was in the log when this leader's epoch began, which
  an earlier leader may have committed.
- A follower that is about to join is waited for. Otherwise a leader that is alone under load always stays ahead of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from headrace.model.image import PartitionImage

UNKNOWN = -1


class Follower(Struct):
    """What a leader knows of one other replica, in its own epoch."""

    broker_id: int
    caught_up_s: float
    """When it last had everything; initially, when the leader's epoch began."""
    broker_epoch: int = UNKNOWN
    """The broker epoch under which it fetched."""
    end_offset: int = UNKNOWN
    """Where its log ends; unknown until it has fetched."""
    start_offset: int = UNKNOWN
    """Where its log starts."""
    asked_s: float = 0.0
    """When it fetched last, and where the leader's log ended then."""
    asked_end: int = UNKNOWN

    def fetched(self, broker_epoch: int, offset: int, leader_end: int, now_s: float) -> None:
        """It has everything before `offset`, and fetches what follows."""
        if broker_epoch != self.broker_epoch:
            self.broker_epoch = broker_epoch
            self.asked_end = UNKNOWN
        if offset >= leader_end:
            self.caught_up_s = now_s
        elif self.asked_end != UNKNOWN and offset >= self.asked_end:
            self.caught_up_s = max(self.caught_up_s, self.asked_s)  # it has all that the log had at its previous fetch
        self.end_offset = offset
        self.asked_s, self.asked_end = now_s, leader_end


class Limits(Struct, frozen=True):
    """How far a replica may fall behind before it is out of sync."""

    lag_s: float = 30.0
    lag_messages: int = -1
    """-1: only time counts."""
    min_isr: int = 1


def may_commit(partition: PartitionImage, min_isr: int) -> bool:
    return len(partition.isr) >= partition.enough_in_sync(min_isr) and not partition.elr


def committed_end(
    own_end: int, followers: Mapping[int, Follower], counted: Iterable[int], waited_for: Iterable[int]
) -> int | None:
    """The lowest log end of the leader and of all in `counted`; None while one of these has not fetched yet.

    `waited_for` are about to join: their log ends count as well."""
    end = own_end
    for broker_id in counted:
        follower = followers.get(broker_id)
        if follower is None or follower.end_offset == UNKNOWN:
            return None
        end = min(end, follower.end_offset)
    for broker_id in waited_for:
        end = min(end, followers[broker_id].end_offset)
    return end


def may_join(follower: Follower, high_watermark: int, epoch_start: int) -> bool:
    return follower.end_offset != UNKNOWN and follower.end_offset >= max(high_watermark, epoch_start)


def falls_behind(follower: Follower, own_end: int, limits: Limits, now_s: float) -> bool:
    if follower.end_offset >= own_end:
        return False
    if now_s - follower.caught_up_s > limits.lag_s:
        return True
    known = follower.end_offset != UNKNOWN
    return limits.lag_messages >= 0 and known and own_end - follower.end_offset > limits.lag_messages


def is_near(follower: Follower, epoch_start: int, own_end: int, limits: Limits, now_s: float) -> bool:
    """It would be in sync if it were a member, so the commit waits for it."""
    known = follower.end_offset != UNKNOWN and follower.end_offset >= epoch_start
    return known and not falls_behind(follower, own_end, limits, now_s)
