"""How a classic group gets from one generation to the next.

Members join until all have joined or the timeout is over. One of them becomes the leader, and its assignment is written
and sent to all. `membership.py` calls this when a member joins, leaves or times out. A generation is written once it is
stable, with the assignments of all members, so that it continues after a restart of the coordinator.

Invariant: every ticket is answered at some point, because a request that waits forever blocks its connection.
"""

from __future__ import annotations

from headrace.coordinators.groups.commands import (
    InitialDelayOver,
    JoinReply,
    JoinTimeUp,
    SessionExpired,
    SyncReply,
    SyncTimeUp,
)
from headrace.coordinators.groups.group import Group, Member, State
from headrace.coordinators.groups.records import group_record
from headrace.coordinators.groups.settings import GroupSettings
from headrace.coordinators.shard import Outcome
from headrace.wire.errors import ErrorCode


class Rebalance:
    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings

    # --- the steps --------------------------------------------------------------------------------------------------

    def advance(self, group: Group, outcome: Outcome, now_ms: int) -> None:
        """A member joined or left: begin a rebalance, or complete the one that waited for this."""
        if group.state is not State.PREPARING:
            self.prepare(group, outcome, now_ms)
        elif not group.initial and group.all_joined():
            self.complete_join(group, outcome, now_ms)

    def prepare(self, group: Group, outcome: Outcome, now_ms: int) -> None:
        if group.state is State.COMPLETING:
            self._recall_syncs(group, outcome)
        group.unsynced.clear()
        outcome.cancel_timer(("sync", group.id))
        group.initial = group.state is State.EMPTY
        group.came_meanwhile = False
        group.state = State.PREPARING
        if group.initial:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._wait_for_more(group, delay_ms, group.rebalance_timeout_ms() - delay_ms, outcome, now_ms)
        elif group.all_joined():
            self.complete_join(group, outcome, now_ms)
        else:
            outcome.set_timer(("join", group.id), group.rebalance_timeout_ms(), JoinTimeUp(group.id))

    def initial_delay_over(self, group: Group, remaining_ms: int, outcome: Outcome, now_ms: int) -> None:
        """Members of a new group tend to start together: as long as more join, the group waits for others."""
        if group.came_meanwhile and remaining_ms > 0:
            group.came_meanwhile = False
            delay_ms = min(self._settings.initial_rebalance_delay_ms, remaining_ms)
            self._wait_for_more(group, delay_ms, remaining_ms - delay_ms, outcome, now_ms)
        else:
            self.complete_join(group, outcome, now_ms)

    def _wait_for_more(self, group: Group, delay_ms: int, remaining_ms: int, outcome: Outcome, now_ms: int) -> None:
        if delay_ms == 0:
            self.complete_join(group, outcome, now_ms)
        else:
            over = InitialDelayOver(group.id, max(remaining_ms, 0))
            outcome.set_timer(("join", group.id), delay_ms, over)

    def complete_join(self, group: Group, outcome: Outcome, now_ms: int) -> None:
        """Begin the next generation with the members that joined. Static members may be absent until their sessions
        end.
        """
        outcome.cancel_timer(("join", group.id))
        group.initial = False
        for member in list(group.members.values()):
            if member.join_ticket is None and member.instance_id is None:
                self.remove(group, member, outcome)
        if group.members and not group.elect_joined_leader():
            # Only absent static members are left: wait until one comes back, or their sessions end.
            outcome.set_timer(("join", group.id), group.rebalance_timeout_ms(), JoinTimeUp(group.id))
            return
        group.generation += 1
        if not group.members:
            group.state, group.protocol, group.leader = State.EMPTY, None, None
            outcome.write(group_record(group.id, group.stored(now_ms)))
            return
        group.state, group.protocol = State.COMPLETING, group.elect_protocol()
        group.unsynced = set(group.members)
        for member in group.members.values():
            self.answer_join(member, self.join_reply(group, member), outcome)
            member.new = False
            self.keep_alive(group, member, outcome)
        outcome.set_timer(("sync", group.id), group.rebalance_timeout_ms(), SyncTimeUp(group.id, group.generation))

    def distribute(self, group: Group, plan: dict[str, bytes], outcome: Outcome, now_ms: int) -> None:
        """The leader's assignment has arrived: write it and send all members their parts."""
        for member in group.members.values():
            member.assignment = plan.get(member.id, b"")
        group.state = State.STABLE
        outcome.write(group_record(group.id, group.stored(now_ms)))
        for member in group.members.values():
            if member.sync_ticket is not None:
                self.answer_sync(member, sync_reply(group, member), outcome)
                self.keep_alive(group, member, outcome)

    def sync_time_up(self, group: Group, generation: int, outcome: Outcome, now_ms: int) -> None:
        if group.generation != generation or group.state is State.PREPARING or not group.unsynced:
            return
        for member_id in sorted(group.unsynced):
            self.remove(group, group.members[member_id], outcome)
        self.prepare(group, outcome, now_ms)

    def synced(self, group: Group, member: Member, outcome: Outcome) -> None:
        group.unsynced.discard(member.id)
        if not group.unsynced:
            outcome.cancel_timer(("sync", group.id))

    def _recall_syncs(self, group: Group, outcome: Outcome) -> None:
        for member in group.members.values():
            member.assignment = b""
            if member.sync_ticket is not None:
                self.answer_sync(member, SyncReply(ErrorCode.rebalance_in_progress), outcome)
                self.keep_alive(group, member, outcome)

    # --- one member -------------------------------------------------------------------------------------------------

    def keep_alive(self, group: Group, member: Member, outcome: Outcome) -> None:
        """Restart the member's session; a new member may wait longer, for a first generation."""
        timeout_ms = self._settings.new_member_timeout_ms if member.new else member.session_timeout_ms
        outcome.set_timer(("session", group.id, member.id), timeout_ms, SessionExpired(group.id, member.id))

    def remove(self, group: Group, member: Member, outcome: Outcome) -> None:
        self.answer_join(member, JoinReply(ErrorCode.unknown_member_id), outcome)
        self.answer_sync(member, SyncReply(ErrorCode.unknown_member_id), outcome)
        outcome.cancel_timer(("session", group.id, member.id))
        group.remove(member)

    def answer_join(self, member: Member, reply: JoinReply, outcome: Outcome) -> None:
        if member.join_ticket is not None:
            outcome.wake(member.join_ticket, reply)
            member.join_ticket = None

    def answer_sync(self, member: Member, reply: SyncReply, outcome: Outcome) -> None:
        if member.sync_ticket is not None:
            outcome.wake(member.sync_ticket, reply)
            member.sync_ticket = None

    def join_reply(self, group: Group, member: Member) -> JoinReply:
        leads = group.leader == member.id
        return JoinReply(
            member_id=member.id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol=group.protocol,
            leader=group.leader or "",
            members=group.roster() if leads else (),
        )


def sync_reply(group: Group, member: Member) -> SyncReply:
    return SyncReply(protocol_type=group.protocol_type, protocol=group.protocol, assignment=member.assignment)
