"""Members of consumer groups: joining, heartbeats, leaving, falling silent (KIP-848).

The heartbeat is the only request: a member uses it to join, to subscribe and to report what it owns, and the response
carries its assignment. Each heartbeat takes the same steps: find the member, store what it reports, compute a new
target assignment if one is needed, and move the member one step towards it. `classic_members.py` does the same for
members that speak the classic protocol. The errors are Kafka's, because clients react to each in a fixed way: on
FENCED_MEMBER_EPOCH and UNKNOWN_MEMBER_ID they give up all partitions and join again, on UNRELEASED_INSTANCE_ID and the
others they stop.

A rejected heartbeat raises KafkaError before the draft is applied.
"""

from __future__ import annotations

from msgspec.structs import replace

from headrace.coordinators.groups.commands import SessionExpired
from headrace.coordinators.groups.consumer_commands import (
    JOIN,
    LEAVE_FOR_NOW,
    ConsumerHeartbeat,
    RevocationTimeUp,
)
from headrace.coordinators.groups.consumer_group import ConsumerGroup
from headrace.coordinators.groups.consumer_records import TARGET, Subscription
from headrace.coordinators.groups.draft import Draft
from headrace.coordinators.groups.membership_reply import MembershipReply
from headrace.coordinators.groups.offsets import Topics
from headrace.coordinators.groups.planning import Planning
from headrace.coordinators.groups.reconciliation import (
    LEFT_FOR_NOW,
    CurrentAssignment,
    MemberState,
    Parts,
    is_part_of,
    next_step,
    parts_of,
)
from headrace.coordinators.groups.settings import GroupSettings
from headrace.coordinators.shard import Outcome
from headrace.model.group_config import HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.entropy import Entropy

AGAIN = "The member must let go of all its partitions and join again."


class ConsumerMembership:
    def __init__(self, settings: GroupSettings, topics: Topics, planning: Planning, entropy: Entropy) -> None:
        self._settings = settings
        self._topics = topics
        self._planning = planning
        self._entropy = entropy

    # --- heartbeats -------------------------------------------------------------------------------------------------

    def heartbeat(self, draft: Draft, command: ConsumerHeartbeat, outcome: Outcome, now_ms: int) -> None:
        self.check_room(draft.group, command.member_id)
        member_id = command.member_id or str(self._entropy.uuid())
        before = self._find(draft, member_id, command)
        current = draft.group.current(member_id)
        changed = self.subscribe(draft, member_id, before, _said(before, command))
        self.advance(draft, member_id, changed, command.owned, now_ms)
        now = draft.group.current(member_id)
        self.keep_alive(draft.group, member_id, outcome)
        self._time_revocation(draft.group, member_id, current, now, outcome)
        said_all = command.rebalance_timeout_ms != -1 and command.owned is not None
        said_all = said_all and (command.topics is not None or command.pattern is not None)
        news = command.epoch == JOIN or said_all or parts_of(current.assigned) != parts_of(now.assigned)
        outcome.reply = MembershipReply(
            member_id=member_id,
            epoch=now.epoch,
            heartbeat_interval_ms=self._in_force(
                draft.group, HEARTBEAT_INTERVAL, self._settings.consumer_heartbeat_interval_ms
            ),
            assignment=parts_of(now.assigned) if news else None,
        )

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        if len(group.members) >= self._settings.consumer_max_size and member_id not in group.members:
            words = f"The group has its {self._settings.consumer_max_size} members, as many as it may have."
            raise KafkaError(ErrorCode.group_max_size_reached, words)

    def _find(self, draft: Draft, member_id: str, command: ConsumerHeartbeat) -> Subscription | None:
        """The member that sends this heartbeat; None for a new one."""
        group, instance_id = draft.group, command.instance_id
        if command.epoch == JOIN and instance_id is not None and instance_id in group.instances:
            return self._take_over(draft, member_id, instance_id)
        if command.epoch == JOIN and member_id not in group.members:
            return None
        problem = group.stranger(member_id, instance_id)
        if problem is not None:
            raise KafkaError(problem, f"{instance_id or member_id} is not a member of group {group.id}.")
        _check_epoch(group.current(member_id), command)
        return group.members[member_id]

    def _take_over(self, draft: Draft, member_id: str, instance_id: str) -> Subscription:
        group = draft.group
        former_id = group.instances[instance_id]
        former = group.members[former_id]
        if former.classic is None and former_id != member_id and group.current(former_id).epoch != LEFT_FOR_NOW:
            raise KafkaError(
                ErrorCode.unreleased_instance_id,
                f"The instance {instance_id} is in use by member {former_id}; stop that one first.",
            )
        if former_id != member_id or group.current(former_id).epoch == LEFT_FOR_NOW:
            self.hand_over(draft, former_id, member_id)
        return former

    def hand_over(self, draft: Draft, former_id: str, member_id: str) -> None:
        """Another process takes over this static member, with its target assignment and its partitions."""
        former, target = draft.group.members[former_id], draft.group.targets.get(former_id)
        current = draft.group.current(former_id)
        draft.remove_member(former_id)
        draft.put_member(member_id, former)
        if target is not None:
            draft.put(TARGET, member_id, target)
        draft.put_current(member_id, replace(current, epoch=0, previous_epoch=0))

    # --- the three steps, shared with classic members -----------------------------------------------------------------

    def subscribe(self, draft: Draft, member_id: str, before: Subscription | None, now: Subscription) -> bool:
        """Stores what the member reports; True if this requires a new target assignment."""
        if draft.group.members.get(member_id) != now:
            draft.put_member(member_id, now)
        return before is None or (before.topics, before.pattern) != (now.topics, now.pattern)

    def advance(self, draft: Draft, member_id: str, changed: bool, owned: Parts | None, now_ms: int) -> None:
        """Computes a target assignment if needed, and moves the member one step towards it."""
        if changed:
            self._planning.bump(draft, now_ms)
        else:
            self._planning.follow_topics(draft, now_ms)
        self._planning.make_plan(draft, now_ms)
        group = draft.group
        current = group.current(member_id)
        step = next_step(
            current,
            group.plan_epoch,
            group.targets.get(member_id, {}),
            owned,
            lambda topic_id, partition: group.owner(topic_id, partition) in (None, member_id),
        )
        if step != current:
            draft.put_current(member_id, step)

    # --- leaving ----------------------------------------------------------------------------------------------------

    def leave_for_now(self, draft: Draft, command: ConsumerHeartbeat, outcome: Outcome) -> None:
        """A static member stops and may come back: it keeps its partitions until its session ends."""
        current = draft.group.current(command.member_id)
        draft.put_current(command.member_id, replace(current, epoch=LEFT_FOR_NOW, revoking={}))
        outcome.cancel_timer(("revocation", draft.group.id, command.member_id))
        outcome.reply = MembershipReply(member_id=command.member_id, epoch=LEAVE_FOR_NOW)

    def remove(self, draft: Draft, member_ids: list[str], outcome: Outcome) -> None:
        for member_id in member_ids:
            draft.remove_member(member_id)
            self.stop_timers(draft.group.id, member_id, outcome)

    def after_departure(self, draft: Draft, now_ms: int) -> None:
        """A new target assignment is needed; the next heartbeat of any member computes it."""
        self._planning.bump(draft, now_ms)
        if not draft.group.members:
            draft.put_plan_epoch(draft.group.epoch, now_ms)  # without members: records since when the group is empty

    # --- time -------------------------------------------------------------------------------------------------------

    def keep_alive(self, group: ConsumerGroup, member_id: str, outcome: Outcome) -> None:
        """Start the member's session anew."""
        facet = group.members[member_id].classic
        if facet is None:
            timeout_ms = self._in_force(group, SESSION_TIMEOUT, self._settings.consumer_session_timeout_ms)
        else:
            timeout_ms = facet.session_timeout_ms
        outcome.set_timer(("session", group.id, member_id), timeout_ms, SessionExpired(group.id, member_id))

    def _in_force(self, group: ConsumerGroup, name: str, otherwise: int) -> int:
        """The group's own setting, or the broker's."""
        own = self._topics.image().group_settings.get(group.id, {})
        return int(own[name]) if name in own else otherwise

    def stop_timers(self, group_id: str, member_id: str, outcome: Outcome) -> None:
        for name in ("session", "revocation", "rejoin", "resync"):
            outcome.cancel_timer((name, group_id, member_id))

    def _time_revocation(
        self, group: ConsumerGroup, member_id: str, before: CurrentAssignment, now: CurrentAssignment, outcome: Outcome
    ) -> None:
        if now == before:
            return
        if now.state is MemberState.UNREVOKED:
            self.await_revocation(group, member_id, outcome)
        else:
            outcome.cancel_timer(("revocation", group.id, member_id))

    def await_revocation(self, group: ConsumerGroup, member_id: str, outcome: Outcome) -> None:
        time_up = RevocationTimeUp(group.id, member_id, group.current(member_id).epoch)
        timeout_ms = group.members[member_id].rebalance_timeout_ms
        outcome.set_timer(("revocation", group.id, member_id), timeout_ms, time_up)


def _said(before: Subscription | None, command: ConsumerHeartbeat) -> Subscription:
    """The member's updated subscription: fields that it does not send are unchanged."""
    known = before or Subscription(command.client_id, command.client_host)
    return Subscription(
        client_id=command.client_id,
        client_host=command.client_host,
        instance_id=known.instance_id if command.instance_id is None else command.instance_id,
        rack=known.rack if command.rack is None else command.rack,
        topics=known.topics if command.topics is None else tuple(sorted(set(command.topics))),
        pattern=known.pattern if command.pattern is None else (command.pattern or None),
        rebalance_timeout_ms=(
            known.rebalance_timeout_ms if command.rebalance_timeout_ms == -1 else command.rebalance_timeout_ms
        ),
        assignor=known.assignor if command.assignor is None else command.assignor,
        classic=None,
    )


def _check_epoch(current: CurrentAssignment, command: ConsumerHeartbeat) -> None:
    """The previous epoch is accepted too: the response with the current one may have been lost."""
    if command.epoch in (JOIN, current.epoch):
        return
    lost = command.epoch == current.previous_epoch < current.epoch
    if not lost or command.owned is None or not is_part_of(command.owned, current.assigned):
        words = f"The member sends epoch {command.epoch}, the coordinator has {current.epoch}. {AGAIN}"
        raise KafkaError(ErrorCode.fenced_member_epoch, words)
