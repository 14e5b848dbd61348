"""Members of classic groups: joining, syncing, heartbeats, leaving, and expired sessions.

This is the entry point for classic groups: it checks the request (member id, instance id, generation) and then lets
`rebalance.py` change the group. Called by the groups shard with the group looked up. The errors are Kafka's, because
clients react to each in a fixed way: on UNKNOWN_MEMBER_ID they join from scratch, on REBALANCE_IN_PROGRESS they join
again, on FENCED_INSTANCE_ID they stop.
"""

from __future__ import annotations

import itertools

from msgspec.structs import replace

from headrace.coordinators.groups.commands import Heartbeat, Join, JoinReply, Leave, SessionExpired, Sync, SyncReply
from headrace.coordinators.groups.group import Group, Member, State, protocols_bytes
from headrace.coordinators.groups.rebalance import Rebalance, sync_reply
from headrace.coordinators.groups.records import group_record
from headrace.coordinators.groups.settings import GroupSettings
from headrace.coordinators.shard import Outcome, Wait
from headrace.wire.errors import ErrorCode
from headrace.world.entropy import Entropy

MAX_CLIENT_ID_IN_MEMBER_ID = 255


class Membership:
    def __init__(self, settings: GroupSettings, entropy: Entropy) -> None:
        self._settings = settings
        self._entropy = entropy
        self._rebalance = Rebalance(settings)
        self._tickets = itertools.count(1)

    # --- joining ----------------------------------------------------------------------------------------------------

    def join(self, group: Group, command: Join, outcome: Outcome, now_ms: int) -> None:
        if not self._has_room(group, command.member_id) or self._is_too_large(group, command):
            self._turn_away(group, command.member_id, outcome, now_ms)
            outcome.reply = JoinReply(ErrorCode.group_max_size_reached)
        elif not group.supports(command.protocol_type, (name for name, _ in command.protocols)):
            outcome.reply = JoinReply(ErrorCode.inconsistent_group_protocol, command.member_id)
        elif command.member_id:
            self._join_known(group, command, outcome, now_ms)
        elif command.instance_id is not None and command.instance_id in group.instances:
            self._replace_static(group, command, outcome, now_ms)
        elif command.instance_id is None and command.needs_member_id:
            member_id = new_member_id(command, self._entropy)
            group.pending.add(member_id)
            expired = SessionExpired(group.id, member_id)
            outcome.set_timer(("session", group.id, member_id), command.session_timeout_ms, expired)
            outcome.reply = JoinReply(ErrorCode.member_id_required, member_id)
        else:
            self._add(group, new_member_id(command, self._entropy), command, outcome, now_ms)

    def _has_room(self, group: Group, member_id: str) -> bool:
        known = group.members.get(member_id)
        if group.state is State.PREPARING:
            return (known is not None and known.join_ticket is not None) or (
                group.joined_count() < self._settings.max_size
            )
        return group.state is State.EMPTY or known is not None or len(group.members) < self._settings.max_size

    def _is_too_large(self, group: Group, command: Join) -> bool:
        """Whether its members would say more with this one than a group may hold."""
        known = group.members.get(command.member_id or group.instances.get(command.instance_id or "", ""))
        before = 0 if known is None else protocols_bytes(known.protocols)
        more = protocols_bytes(command.protocols) - before
        return more > 0 and group.said_bytes + more > self._settings.max_group_bytes

    def _turn_away(self, group: Group, member_id: str, outcome: Outcome, now_ms: int) -> None:
        member = group.members.get(member_id)
        if member is not None:
            self._rebalance.remove(group, member, outcome)
        self._drop_pending(group, member_id, outcome)
        self._after_departure(group, member is not None, outcome, now_ms)

    def _add(self, group: Group, member_id: str, command: Join, outcome: Outcome, now_ms: int) -> None:
        if not group.members:
            group.protocol_type = command.protocol_type
        member = Member(
            member_id,
            command.instance_id,
            command.client_id,
            command.client_host,
            command.session_timeout_ms,
            command.rebalance_timeout_ms,
            command.protocols,
        )
        group.add(member)
        if group.initial:
            group.came_meanwhile = True
        self._rebalance.keep_alive(group, member, outcome)
        self._park_join(member, outcome)
        self._rebalance.advance(group, outcome, now_ms)

    def _join_known(self, group: Group, command: Join, outcome: Outcome, now_ms: int) -> None:
        if command.member_id in group.pending and command.instance_id is None:
            self._add(group, command.member_id, command, outcome, now_ms)
            return
        problem = group.stranger(command.member_id, command.instance_id)
        if problem is not None:
            outcome.reply = JoinReply(problem, command.member_id)
            return
        member = group.members[command.member_id]
        same = member.protocols == command.protocols
        # A leader that joins a stable group again wants a new assignment, even if its own metadata is unchanged.
        content = group.state is State.COMPLETING or (group.state is State.STABLE and group.leader != member.id)
        if same and content:
            self._rebalance.keep_alive(group, member, outcome)
            outcome.reply = self._rebalance.join_reply(group, member)
            if group.state is State.STABLE:
                outcome.reply = replace(outcome.reply, members=())
            return
        self._update(group, member, command)
        self._park_join(member, outcome)
        self._rebalance.advance(group, outcome, now_ms)

    def _replace_static(self, group: Group, command: Join, outcome: Outcome, now_ms: int) -> None:
        """A static member was restarted: the new process takes over the membership and the partitions."""
        assert command.instance_id is not None
        member = group.members[group.instances[command.instance_id]]
        leader_before, old_id = group.leader, member.id
        self._rebalance.answer_join(member, JoinReply(ErrorCode.fenced_instance_id, old_id), outcome)
        self._rebalance.answer_sync(member, SyncReply(ErrorCode.fenced_instance_id), outcome)
        outcome.cancel_timer(("session", group.id, old_id))
        group.rename(member, new_member_id(command, self._entropy))
        self._update(group, member, command)
        group.member_bytes += len(command.client_id) - len(member.client_id)
        member.client_id, member.client_host = command.client_id, command.client_host
        self._rebalance.keep_alive(group, member, outcome)
        if group.state is State.STABLE and group.elect_protocol() == group.protocol:
            outcome.write(group_record(group.id, group.stored(now_ms)))
            reply = self._rebalance.join_reply(group, member)
            if command.can_skip_assignment:
                outcome.reply = replace(reply, skip_assignment=group.leader == member.id)
            else:
                # An older client would compute an assignment if it were told that it leads; it gets its old id instead.
                outcome.reply = replace(reply, leader=leader_before or "", members=())
            return
        self._park_join(member, outcome)
        self._rebalance.advance(group, outcome, now_ms)

    def _update(self, group: Group, member: Member, command: Join) -> None:
        group.teach(member, command.protocols)
        member.session_timeout_ms = command.session_timeout_ms
        member.rebalance_timeout_ms = command.rebalance_timeout_ms

    def _park_join(self, member: Member, outcome: Outcome) -> None:
        # A member may send a request again after its connection broke; the first request must not wait forever.
        self._rebalance.answer_join(member, JoinReply(ErrorCode.rebalance_in_progress, member.id), outcome)
        member.join_ticket = next(self._tickets)
        outcome.reply = Wait(member.join_ticket)

    # --- being a member ---------------------------------------------------------------------------------------------

    def sync(self, group: Group, command: Sync, outcome: Outcome, now_ms: int) -> None:
        problem = group.stranger(command.member_id, command.instance_id) or _wrong_sync(group, command)
        if problem is not None:
            outcome.reply = SyncReply(problem)
            return
        member = group.members[command.member_id]
        if group.state is State.PREPARING:
            outcome.reply = SyncReply(ErrorCode.rebalance_in_progress)
            return
        if sum(map(len, command.assignments.values())) > self._settings.max_group_bytes:
            outcome.reply = SyncReply(ErrorCode.unknown_server_error)  # as Kafka, which cannot store it either
            return
        self._rebalance.synced(group, member, outcome)
        if group.state is State.STABLE:
            self._rebalance.keep_alive(group, member, outcome)
            outcome.reply = sync_reply(group, member)
            return
        self._rebalance.answer_sync(member, SyncReply(ErrorCode.rebalance_in_progress), outcome)
        member.sync_ticket = next(self._tickets)
        outcome.reply = Wait(member.sync_ticket)
        if group.leader == member.id:
            self._rebalance.distribute(group, dict(command.assignments), outcome, now_ms)

    def heartbeat(self, group: Group, command: Heartbeat, outcome: Outcome) -> None:
        problem = group.stranger(command.member_id, command.instance_id)
        if problem is None and command.generation != group.generation:
            problem = ErrorCode.illegal_generation
        if problem is not None:
            outcome.reply = problem
            return
        self._rebalance.keep_alive(group, group.members[command.member_id], outcome)
        preparing = group.state is State.PREPARING
        outcome.reply = ErrorCode.rebalance_in_progress if preparing else ErrorCode.none

    def seen(self, group: Group, member_id: str, outcome: Outcome) -> None:
        """Another request proves that the member is alive."""
        member = group.members.get(member_id)
        if member is not None and not member.new:
            self._rebalance.keep_alive(group, member, outcome)

    # --- ceasing to be one ------------------------------------------------------------------------------------------

    def leave(self, group: Group, command: Leave, outcome: Outcome, now_ms: int) -> None:
        before = len(group.members)
        outcome.reply = [self._leave(group, member_id, instance, outcome) for member_id, instance in command.members]
        self._after_departure(group, len(group.members) < before, outcome, now_ms)

    def _leave(self, group: Group, member_id: str, instance_id: str | None, outcome: Outcome) -> ErrorCode:
        if not member_id and instance_id is not None:  # an operator removes a static member by its instance id
            member_id = group.instances.get(instance_id, "")
        if member_id in group.pending:
            self._drop_pending(group, member_id, outcome)
            return ErrorCode.none
        problem = group.stranger(member_id, instance_id)
        if problem is not None:
            return problem
        self._rebalance.remove(group, group.members[member_id], outcome)
        return ErrorCode.none

    def session_expired(self, group: Group, member_id: str, outcome: Outcome, now_ms: int) -> None:
        member = group.members.get(member_id)
        if member_id in group.pending:
            self._drop_pending(group, member_id, outcome)
        elif member is None or (not member.new and (member.join_ticket or member.sync_ticket)):
            return  # a member that waits for our reply is not silent; its session restarts with the reply
        else:
            self._rebalance.remove(group, member, outcome)
        self._after_departure(group, member is not None, outcome, now_ms)

    def _drop_pending(self, group: Group, member_id: str, outcome: Outcome) -> None:
        if member_id in group.pending:
            group.pending.remove(member_id)
            outcome.cancel_timer(("session", group.id, member_id))

    def _after_departure(self, group: Group, of_member: bool, outcome: Outcome, now_ms: int) -> None:
        """A departure begins a rebalance, or completes one that waits; a client that had not joined is just removed."""
        if group.state is State.PREPARING or (of_member and group.state is not State.EMPTY):
            self._rebalance.advance(group, outcome, now_ms)

    # --- changing its kind ------------------------------------------------------------------------------------------

    def dissolve(self, group: Group, outcome: Outcome) -> None:
        """The group becomes a consumer group: waiting members are told to join again."""
        for member in group.members.values():
            self._rebalance.answer_join(member, JoinReply(ErrorCode.rebalance_in_progress, member.id), outcome)
            self._rebalance.answer_sync(member, SyncReply(ErrorCode.rebalance_in_progress), outcome)
        for member_id in list(group.pending):
            self._drop_pending(group, member_id, outcome)
        outcome.cancel_timer(("join", group.id))
        outcome.cancel_timer(("sync", group.id))

    def resume(self, group: Group, outcome: Outcome, now_ms: int, *, rebalance: bool) -> None:
        """The group was a consumer group until now."""
        for member in group.members.values():
            self._rebalance.keep_alive(group, member, outcome)
        if rebalance:
            self._rebalance.prepare(group, outcome, now_ms)

    # --- timers of the group ----------------------------------------------------------------------------------------

    def join_time_up(self, group: Group, outcome: Outcome, now_ms: int) -> None:
        if group.state is State.PREPARING:
            self._rebalance.complete_join(group, outcome, now_ms)

    def initial_delay_over(self, group: Group, remaining_ms: int, outcome: Outcome, now_ms: int) -> None:
        if group.state is State.PREPARING:
            self._rebalance.initial_delay_over(group, remaining_ms, outcome, now_ms)

    def sync_time_up(self, group: Group, generation: int, outcome: Outcome, now_ms: int) -> None:
        self._rebalance.sync_time_up(group, generation, outcome, now_ms)


def new_member_id(command: Join, entropy: Entropy) -> str:
    prefix = command.instance_id or command.client_id[:MAX_CLIENT_ID_IN_MEMBER_ID]
    return f"{prefix}-{entropy.uuid()}"


def _wrong_sync(group: Group, command: Sync) -> ErrorCode | None:
    if command.generation != group.generation:
        return ErrorCode.illegal_generation
    if command.protocol_type is not None and command.protocol_type != group.protocol_type:
        return ErrorCode.inconsistent_group_protocol
    if command.protocol is not None and command.protocol != group.protocol:
        return ErrorCode.inconsistent_group_protocol
    return None
