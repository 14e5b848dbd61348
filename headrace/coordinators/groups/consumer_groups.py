"""The consumer groups of a shard: the entry point to all of KIP-848, beside the classic groups.

Called by the groups shard, which handles offsets and classic groups. It finds or creates the group, lets the
responsible modules draft the change, and turns rejections into replies. Invariant: a name belongs to one type of group
at a time. When a group changes its type, the records of the old type are removed in the same write that adds the new
ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace.coordinators.groups.classic_members import ClassicMembers
from headrace.coordinators.groups.commands import (
    CommitInTransaction,
    CommitOffsets,
    FetchOffsets,
    GroupListing,
    Heartbeat,
    Join,
    JoinReply,
    Leave,
    Sync,
    SyncReply,
)
from headrace.coordinators.groups.consumer_commands import (
    JOIN,
    LEAVE,
    LEAVE_FOR_NOW,
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    ConsumerMemberDescription,
    RevocationTimeUp,
)
from headrace.coordinators.groups.consumer_group import ConsumerGroup
from headrace.coordinators.groups.consumer_membership import ConsumerMembership
from headrace.coordinators.groups.draft import Draft
from headrace.coordinators.groups.durable import DurableGroups
from headrace.coordinators.groups.group import Group, State
from headrace.coordinators.groups.membership import Membership
from headrace.coordinators.groups.membership_reply import MembershipReply
from headrace.coordinators.groups.migration import POLICIES, moved_down, moved_up
from headrace.coordinators.groups.offsets import Topics
from headrace.coordinators.groups.planning import Planning
from headrace.coordinators.groups.reconciliation import MemberState, parts_of
from headrace.coordinators.groups.records import group_record, group_tombstone
from headrace.coordinators.groups.settings import GroupSettings
from headrace.coordinators.groups.subscription import CONSUMER
from headrace.coordinators.groups.topic_patterns import UnfitPattern, compile_pattern
from headrace.coordinators.shard import Outcome
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.entropy import Entropy

MAX_NAME_BYTES = 0x7FFF  # what the record format has room for
_TOPIC_BYTES = 20  # of a topic's name, at least: more topics than fit are not even counted


class ConsumerGroups:
    def __init__(
        self,
        durable: DurableGroups,
        classic: dict[str, Group],
        classic_membership: Membership,
        settings: GroupSettings,
        topics: Topics,
        entropy: Entropy,
        monotonic: Callable[[], float],
    ) -> None:
        self._groups = durable.consumers
        self._durable = durable
        self._classic = classic
        self._classic_membership = classic_membership
        self._settings = settings
        self._topics = topics
        self._planning = Planning(topics, settings.consumer_assignors, monotonic)
        self._membership = ConsumerMembership(settings, topics, self._planning, entropy)
        self._classic_members = ClassicMembers(self._membership, topics, entropy)

    def loaded(self, outcome: Outcome) -> None:
        """After loading, every member gets a full session timeout, and a full rebalance timeout to revoke
        partitions."""
        for group in self._groups.values():
            for member_id, member in group.members.items():
                self._membership.keep_alive(group, member_id, outcome)
                if member.classic is None and group.current(member_id).state is MemberState.UNREVOKED:
                    self._membership.await_revocation(group, member_id, outcome)

    # --- heartbeats of the new protocol ------------------------------------------------------------------------------

    def heartbeat(self, command: ConsumerHeartbeat, outcome: Outcome, now_ms: int) -> None:
        try:
            self._check(command)
            if command.epoch in (LEAVE, LEAVE_FOR_NOW):
                self._leave(command, outcome, now_ms)
            else:
                draft = self._open(command, now_ms)
                self._membership.heartbeat(draft, command, outcome, now_ms)
                self._check_size(draft)
                self._take_from_classic(draft.group, outcome)
                draft.carry_into(outcome)
        except KafkaError as error:
            outcome.reply = MembershipReply(error.code, error.message or None)

    def _check(self, command: ConsumerHeartbeat) -> None:
        problem = _bad_request(command)
        if problem is not None:
            raise KafkaError(ErrorCode.invalid_request, problem)
        if command.assignor is not None and command.assignor not in self._planning.assignors:
            known = ", ".join(self._planning.assignors)
            words = f"ServerAssignor {command.assignor} is not supported. Supported assignors: {known}."
            raise KafkaError(ErrorCode.unsupported_assignor, words)
        if len(command.topics or ()) > self._settings.max_group_bytes // _TOPIC_BYTES:
            raise KafkaError(ErrorCode.group_max_size_reached, f"The member names {len(command.topics or ())} topics.")
        if command.pattern:
            try:
                compile_pattern(command.pattern)
            except UnfitPattern as unfit:
                words = f"The pattern {command.pattern!r} cannot be used: {unfit}."
                raise KafkaError(ErrorCode.invalid_regular_expression, words) from None

    def _check_size(self, draft: Draft) -> None:
        """A group may not take more memory than allowed because of what its members say."""
        group_id, most = draft.group.id, self._settings.max_group_bytes
        before, after = self._durable.said_bytes(group_id), self._durable.said_bytes(group_id, draft.records)
        if after > max(most, before):
            words = f"The group would take more than the {most} bytes that headrace.group.max.bytes allows."
            raise KafkaError(ErrorCode.group_max_size_reached, words)

    def _open(self, command: ConsumerHeartbeat, now_ms: int) -> Draft:
        """The group to draft on: the existing one, a new one, or one converted from a classic group."""
        found = self._groups.get(command.group_id)
        if found is not None:
            return Draft(found)
        if command.epoch != JOIN:
            raise KafkaError(ErrorCode.group_id_not_found, f"Group {command.group_id} is not a consumer group.")
        classic = self._classic.get(command.group_id)
        if classic is None or classic.state is State.EMPTY:
            return Draft(ConsumerGroup(command.group_id))
        draft = None
        if POLICIES[self._settings.migration_policy][0] and len(classic.members) <= self._settings.consumer_max_size:
            draft = moved_up(classic, self._topics.image(), now_ms)
        if draft is None:
            raise KafkaError(ErrorCode.group_id_not_found, f"Group {command.group_id} is not a consumer group.")
        return draft

    def _take_from_classic(self, group: ConsumerGroup, outcome: Outcome) -> None:
        """The name belongs to a consumer group from now on."""
        classic = self._classic.pop(group.id, None)
        if classic is not None:
            self._classic_membership.dissolve(classic, outcome)
            for member_id in classic.members.keys() & group.members.keys():
                self._membership.keep_alive(group, member_id, outcome)
        if group.id in self._durable.groups:
            outcome.write(group_tombstone(group.id))

    def _leave(self, command: ConsumerHeartbeat, outcome: Outcome, now_ms: int) -> None:
        group = self._groups.get(command.group_id)
        if group is None:
            raise KafkaError(ErrorCode.group_id_not_found, f"Group {command.group_id} is not a consumer group.")
        problem = group.stranger(command.member_id, command.instance_id)
        if problem is not None:
            raise KafkaError(problem, f"{command.member_id} is not a member of group {group.id}.")
        if command.epoch == LEAVE_FOR_NOW:
            draft = Draft(group)
            self._membership.leave_for_now(draft, command, outcome)
            draft.carry_into(outcome)
        else:
            self._put_out(group, [command.member_id], outcome, now_ms)
            outcome.reply = MembershipReply(member_id=command.member_id, epoch=LEAVE)

    # --- members that speak the classic protocol ---------------------------------------------------------------------

    def serves_classic_members(self, group_id: str) -> bool:
        """Whether JoinGroup is for the consumer group of this name; an empty one is replaced by a classic group."""
        return group_id in self._groups and bool(self._groups[group_id].members)

    def join(self, command: Join, outcome: Outcome, now_ms: int) -> None:
        draft = Draft(self._groups[command.group_id])
        former_id = draft.group.instances.get(command.instance_id or "")
        try:
            self._classic_members.join(draft, command, outcome, now_ms)
            self._check_size(draft)
        except KafkaError as error:
            outcome.reply = JoinReply(error.code, command.member_id)
            return
        replaced = former_id is not None and former_id not in draft.group.members
        if replaced and self._may_move_down(draft.group):
            self._move_down(draft, outcome, now_ms, rebalance=False)
        else:
            draft.carry_into(outcome)

    def sync(self, command: Sync, outcome: Outcome) -> None:
        try:
            self._classic_members.sync(self._groups[command.group_id], command, outcome)
        except KafkaError as error:
            outcome.reply = SyncReply(error.code)

    def classic_heartbeat(self, command: Heartbeat, outcome: Outcome) -> None:
        try:
            self._classic_members.heartbeat(self._groups[command.group_id], command, outcome)
        except KafkaError as error:
            outcome.reply = error.code

    def leave(self, command: Leave, outcome: Outcome, now_ms: int) -> None:
        """A classic member leaves, or an operator removes members of either protocol."""
        group = self._groups[command.group_id]
        replies, leaving = [], list[str]()
        for member_id, instance_id in command.members:
            if not member_id and instance_id is not None:  # an operator names static members by their instance id
                member_id = group.instances.get(instance_id, "")
            problem = group.stranger(member_id, instance_id)
            if problem is None and member_id not in leaving:
                leaving.append(member_id)
            replies.append(problem or ErrorCode.none)
        if leaving:
            self._put_out(group, leaving, outcome, now_ms)
        outcome.reply = replies

    # --- going ------------------------------------------------------------------------------------------------------

    def time_up(self, group_id: str, member_id: str, outcome: Outcome, now_ms: int) -> None:
        """A session or rebalance timeout of the member has expired."""
        group = self._groups.get(group_id)
        if group is not None and member_id in group.members:
            self._put_out(group, [member_id], outcome, now_ms)

    def revocation_time_up(self, command: RevocationTimeUp, outcome: Outcome, now_ms: int) -> None:
        group = self._groups.get(command.group_id)
        if group is not None and group.current(command.member_id).epoch == command.epoch:
            self.time_up(command.group_id, command.member_id, outcome, now_ms)

    def _put_out(self, group: ConsumerGroup, member_ids: list[str], outcome: Outcome, now_ms: int) -> None:
        draft = Draft(group)
        only_classic = all(group.members[member_id].classic is not None for member_id in member_ids)
        for member_id in member_ids:
            self._classic_members.forget(group.id, member_id)
        self._membership.remove(draft, member_ids, outcome)
        if draft.group.members and not only_classic and self._may_move_down(draft.group):
            self._move_down(draft, outcome, now_ms, rebalance=True)
        else:
            self._membership.after_departure(draft, now_ms)
            draft.carry_into(outcome)

    def _may_move_down(self, group: ConsumerGroup) -> bool:
        allowed = POLICIES[self._settings.migration_policy][1] and len(group.members) <= self._settings.max_size
        return allowed and all(member.classic is not None for member in group.members.values())

    def _move_down(self, draft: Draft, outcome: Outcome, now_ms: int, *, rebalance: bool) -> None:
        group = draft.group
        classic = self._classic[group.id] = moved_down(group, self._topics.image())
        draft.remove_group()
        draft.carry_into(outcome)
        for member_id in classic.members:
            self._classic_members.forget(group.id, member_id)
            self._membership.stop_timers(group.id, member_id, outcome)
        outcome.write(group_record(group.id, classic.stored(now_ms)))
        self._classic_membership.resume(classic, outcome, now_ms, rebalance=rebalance)
        self._planning.forget(group.id)

    def give_up(self, group_id: str, outcome: Outcome) -> None:
        """Removes an empty group: a classic member joins it, or it is not needed any more."""
        group = self._groups.get(group_id)
        if group is not None:
            draft = Draft(group)
            draft.remove_group()
            draft.carry_into(outcome)
            self._planning.forget(group_id)

    # --- questions --------------------------------------------------------------------------------------------------

    def may_commit(self, group: ConsumerGroup, command: CommitOffsets | CommitInTransaction) -> list[ErrorCode]:
        """An ErrorCode for each of the offsets. A commit with an older epoch is accepted for partitions that the member
        has owned since that epoch (KIP-1251): nobody else can have committed in between. A transactional producer that
        names no member is accepted: its transaction fences it (KIP-447). For a wrong epoch it gets the error for
        generations, because any other one is fatal for a Java producer."""
        count, in_transaction = len(command.offsets), isinstance(command, CommitInTransaction)
        nobody = command.generation < 0 and not command.member_id and command.instance_id is None
        if command.generation < 0 and (not group.members or (nobody and in_transaction)):
            return [ErrorCode.none] * count
        if command.member_id not in group.members:
            return [ErrorCode.unknown_member_id] * count
        current, is_classic = group.current(command.member_id), group.members[command.member_id].classic is not None
        if not is_classic and isinstance(command, CommitOffsets) and not command.knows_consumer_groups:
            return [ErrorCode.unsupported_version] * count
        stale = ErrorCode.illegal_generation if is_classic or in_transaction else ErrorCode.stale_member_epoch
        if command.generation == current.epoch:
            return [ErrorCode.none] * count
        if command.generation > current.epoch:
            return [stale] * count
        given = [current.given_epoch(offset.topic_id, offset.partition) for offset in command.offsets]
        return [stale if epoch is None or command.generation < epoch else ErrorCode.none for epoch in given]

    def may_not_fetch(self, group: ConsumerGroup, command: FetchOffsets) -> ErrorCode | None:
        if not command.member_id and command.member_epoch < 0:
            return None
        member = group.members.get(command.member_id or "")
        if member is None:
            return ErrorCode.unknown_member_id
        if command.member_epoch == group.current(command.member_id or "").epoch:
            return None
        return ErrorCode.stale_member_epoch if member.classic is None else ErrorCode.illegal_generation

    def listings(self) -> Iterator[GroupListing]:
        for group in self._groups.values():
            yield GroupListing(group.id, CONSUMER, group.state().value, len(group.members), CONSUMER)

    def describe(self, group_id: str) -> ConsumerGroupDescription:
        group = self._groups.get(group_id)
        if not group_id:
            return ConsumerGroupDescription(ErrorCode.invalid_group_id, "GroupId can't be empty.")
        if group is None:
            other = group_id in self._classic
            words = f"Group {group_id} is not a consumer group." if other else f"Group {group_id} not found."
            return ConsumerGroupDescription(ErrorCode.group_id_not_found, words)
        members = tuple(
            ConsumerMemberDescription(
                member_id,
                member.instance_id,
                member.rack,
                group.current(member_id).epoch,
                member.client_id,
                member.client_host,
                member.topics,
                member.pattern,
                parts_of(group.current(member_id).assigned),
                group.targets.get(member_id, {}),
                member.classic is not None,
            )
            for member_id, member in group.members.items()
        )
        return ConsumerGroupDescription(
            state=group.state().value,
            epoch=group.epoch,
            plan_epoch=group.plan_epoch,
            assignor=self._planning.assignor_of(group),
            members=members,
        )


def _blank(text: str | None) -> bool:
    return text is not None and not text.strip()


def _bad_request(command: ConsumerHeartbeat) -> str | None:
    """Errors of the request itself, whatever the group."""
    names = (command.group_id, command.member_id, command.instance_id or "", command.pattern or "")
    if not command.group_id.strip():
        return "GroupId can't be empty."
    if _blank(command.instance_id) or _blank(command.rack):
        return "InstanceId and RackId can't be empty."
    if not all(len(name.encode()) <= MAX_NAME_BYTES for name in names):
        return f"A name has at most {MAX_NAME_BYTES} bytes."
    if command.epoch < LEAVE_FOR_NOW:
        return "MemberEpoch is invalid."
    if not command.member_id.strip() and (command.epoch != JOIN or command.brings_member_id):
        return "MemberId can't be empty."
    if command.epoch == LEAVE_FOR_NOW and command.instance_id is None:
        return "InstanceId can't be null."
    if command.epoch == JOIN:
        if command.rebalance_timeout_ms == -1:
            return "RebalanceTimeoutMs must be provided in first request."
        if command.owned is None or command.owned:
            return "TopicPartitions must be empty when (re-)joining."
        if command.topics is None and command.pattern is None:
            return "Either SubscribedTopicNames or SubscribedTopicRegex must be set when (re-)joining."
    return None
