"""The groups shard: all groups, of all types, whose names hash to one partition of `__consumer_offsets`.

It owns the groups' live state and, through `DurableGroups`, their durable state. It looks up the group of a command and
passes it to the responsible module: `membership` for members of classic groups, `consumer_groups` for everything of
KIP-848, `share_groups` for share groups, `offsets` for offsets. Run by the coordinator runtime. Invariant: a group
exists here exactly while it has members, clients that are about to join, offsets, or a written generation. All of them
together take a bounded amount of memory (room.py); a name that is known goes on when there is no more room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from headrace.coordinators.groups.commands import (
    CommitInTransaction,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    ExpireOffsets,
    FetchOffsets,
    ForgetTopic,
    GroupDescription,
    GroupListing,
    Heartbeat,
    InitialDelayOver,
    Join,
    JoinReply,
    JoinTimeUp,
    Leave,
    ListGroups,
    MemberDescription,
    SessionExpired,
    Sync,
    SyncReply,
    SyncTimeUp,
)
from headrace.coordinators.groups.consumer_commands import (
    ClassicMemberTimeUp,
    ConsumerHeartbeat,
    DescribeConsumerGroup,
    RevocationTimeUp,
)
from headrace.coordinators.groups.consumer_group import ConsumerGroup
from headrace.coordinators.groups.consumer_groups import ConsumerGroups
from headrace.coordinators.groups.durable import DurableGroups
from headrace.coordinators.groups.group import Group, State, restored
from headrace.coordinators.groups.membership import Membership
from headrace.coordinators.groups.membership_reply import MembershipReply
from headrace.coordinators.groups.offsets import GroupOffsets, Topics
from headrace.coordinators.groups.records import group_tombstone, offset_tombstone
from headrace.coordinators.groups.room import NO_ROOM, Room
from headrace.coordinators.groups.settings import GroupSettings
from headrace.coordinators.groups.share_commands import ShareHeartbeat
from headrace.coordinators.groups.share_groups import ShareGroups
from headrace.coordinators.groups.share_refusals import refusal_of_a_share_group
from headrace.coordinators.shard import Outcome
from headrace.model.journal_entry import NO_PRODUCER_ID
from headrace.wire.errors import ErrorCode
from headrace.world.entropy import Entropy

MAX_RECORDS = 1_000  # in one write of a clean-up, so that it fits into a batch
MAX_LOOKS = 5_000  # at offsets in one piece of a clean-up, so that nobody waits long for it
LOOKS_OF_A_GROUP = 20  # a group takes as long as so many offsets
MAX_PROTOCOLS = 1_000  # of a member; clients have a handful
MAX_NAME_BYTES = 0x7FFF  # what the record format has room for


class GroupShard:
    def __init__(
        self,
        settings: GroupSettings,
        topics: Topics,
        entropy: Entropy,
        monotonic: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`monotonic` is only for ending work that takes long; without it, such work is done in one piece."""
        self.durable = DurableGroups()
        self._settings = settings
        self._membership = Membership(settings, entropy)
        self._offsets = GroupOffsets(self.durable, settings, topics)
        self._room = Room(self.durable, settings.max_state_bytes)
        self._groups: dict[str, Group] = {}  # the classic ones
        self._consumers = ConsumerGroups(
            self.durable, self._groups, self._membership, settings, topics, entropy, monotonic
        )
        self._shares = ShareGroups(self.durable, self._groups, settings, topics)
        self._rules: dict[type, Callable[[Any, Outcome, int], None]] = {
            Join: self._join,
            Sync: self._sync,
            Heartbeat: self._heartbeat,
            Leave: self._leave,
            CommitOffsets: self._commit,
            CommitInTransaction: self._commit_in_transaction,
            FetchOffsets: self._fetch,
            DeleteOffsets: self._delete_offsets,
            ListGroups: self._list,
            DescribeGroup: self._describe,
            DeleteGroup: self._delete_group,
            ForgetTopic: self._forget_topic,
            ExpireOffsets: self._expire_offsets,
            SessionExpired: self._session_expired,
            JoinTimeUp: self._join_time_up,
            InitialDelayOver: self._initial_delay_over,
            SyncTimeUp: self._sync_time_up,
            ConsumerHeartbeat: self._consumer_heartbeat,
            DescribeConsumerGroup: self._describe_consumer_group,
            RevocationTimeUp: self._consumers.revocation_time_up,
            ClassicMemberTimeUp: self._session_expired,
            **self._shares.rules,
            ShareHeartbeat: self._share_heartbeat,
        }

    # --- the shard contract -----------------------------------------------------------------------------------------

    def decide(self, command: Any, now_ms: int) -> Outcome:
        outcome = Outcome()
        group_id = getattr(command, "group_id", None)
        refusal = refusal_of_a_share_group(command) if group_id in self.durable.shares else None
        if refusal is not None:
            outcome.reply = refusal
            return outcome
        self._rules[type(command)](command, outcome, now_ms)
        if group_id is not None:
            self._room.weigh(group_id, self._groups.get(group_id))
        return outcome

    def apply(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID) -> None:
        self.durable.apply(key, value, producer_id)

    def apply_end(self, producer_id: int, commit: bool) -> None:
        self.durable.apply_end(producer_id, commit)

    def loaded(self, now_ms: int) -> Outcome:
        """Groups continue where they were: same generation and assignments; members get a full session timeout."""
        outcome = Outcome()
        for group_id in self.durable.names():
            group = self._groups[group_id] = restored(group_id, self.durable.groups.get(group_id))
            for member_id in group.members:
                self._membership.seen(group, member_id, outcome)
            self._room.weigh(group_id, group)
        self._consumers.loaded(outcome)
        self._shares.loaded(outcome)
        outcome.set_timer("expiry", self._settings.offsets_check_interval_ms, ExpireOffsets())
        return outcome

    # --- members ----------------------------------------------------------------------------------------------------

    def _join(self, command: Join, outcome: Outcome, now_ms: int) -> None:
        problem = self._unfit(command)
        if problem is not None:
            outcome.reply = JoinReply(problem, command.member_id)
            return
        if not self._room.for_member(command, self._groups.get(command.group_id), now_ms):
            outcome.reply = JoinReply(ErrorCode.coordinator_not_available, command.member_id)
            return
        if self._consumers.serves_classic_members(command.group_id):
            self._consumers.join(command, outcome, now_ms)
            return
        group = self._groups.get(command.group_id)
        if group is None and command.member_id:
            outcome.reply = JoinReply(ErrorCode.unknown_member_id, command.member_id)
            return
        if group is None:
            group = self._groups[command.group_id] = Group(command.group_id)
            self._consumers.give_up(command.group_id, outcome)
        self._membership.join(group, command, outcome, now_ms)
        self._drop_if_traceless(group, outcome)

    def _unfit(self, command: Join) -> ErrorCode | None:
        if not command.group_id or not _storable(command.group_id):
            return ErrorCode.invalid_group_id
        low, high = self._settings.min_session_timeout_ms, self._settings.max_session_timeout_ms
        if not low <= command.session_timeout_ms <= high:
            return ErrorCode.invalid_session_timeout
        names = [command.protocol_type, *(name for name, _ in command.protocols[:MAX_PROTOCOLS])]
        if len(command.protocols) > MAX_PROTOCOLS or not all(map(_storable, names)):
            return ErrorCode.inconsistent_group_protocol
        # A member id is made of the instance id and a uuid.
        return ErrorCode.invalid_request if not _storable((command.instance_id or "") + "-" * 37) else None

    def _consumer_heartbeat(self, command: ConsumerHeartbeat, outcome: Outcome, now_ms: int) -> None:
        if self._room.for_subscription(command, now_ms):
            self._consumers.heartbeat(command, outcome, now_ms)
        else:
            outcome.reply = MembershipReply(ErrorCode.coordinator_not_available, NO_ROOM)

    def _share_heartbeat(self, command: ShareHeartbeat, outcome: Outcome, now_ms: int) -> None:
        if self._room.for_subscription(command, now_ms):
            self._shares.heartbeat(command, outcome)
        else:
            outcome.reply = MembershipReply(ErrorCode.coordinator_not_available, NO_ROOM)

    def _sync(self, command: Sync, outcome: Outcome, now_ms: int) -> None:
        group = self._groups.get(command.group_id)
        if command.group_id in self.durable.consumers:
            self._consumers.sync(command, outcome)
        elif not command.group_id or group is None:
            outcome.reply = SyncReply(_no_group(command.group_id))
        else:
            self._membership.sync(group, command, outcome, now_ms)

    def _heartbeat(self, command: Heartbeat, outcome: Outcome, now_ms: int) -> None:
        group = self._groups.get(command.group_id)
        if command.group_id in self.durable.consumers:
            self._consumers.classic_heartbeat(command, outcome)
        elif not command.group_id or group is None:
            outcome.reply = _no_group(command.group_id)
        else:
            self._membership.heartbeat(group, command, outcome)

    def _leave(self, command: Leave, outcome: Outcome, now_ms: int) -> None:
        group = self._groups.get(command.group_id)
        if command.group_id in self.durable.consumers:
            self._consumers.leave(command, outcome, now_ms)
        elif not command.group_id or group is None:
            outcome.reply = [_no_group(command.group_id)] * len(command.members)
        else:
            self._membership.leave(group, command, outcome, now_ms)
            self._drop_if_traceless(group, outcome)

    def _session_expired(self, command: SessionExpired | ClassicMemberTimeUp, outcome: Outcome, now_ms: int) -> None:
        group = self._groups.get(command.group_id)
        if group is None:
            self._consumers.time_up(command.group_id, command.member_id, outcome, now_ms)
        else:
            self._membership.session_expired(group, command.member_id, outcome, now_ms)
            self._drop_if_traceless(group, outcome)

    def _join_time_up(self, command: JoinTimeUp, outcome: Outcome, now_ms: int) -> None:
        group = self._groups.get(command.group_id)
        if group is not None:
            self._membership.join_time_up(group, outcome, now_ms)

    def _initial_delay_over(self, command: InitialDelayOver, outcome: Outcome, now_ms: int) -> None:
        group = self._groups.get(command.group_id)
        if group is not None:
            self._membership.initial_delay_over(group, command.remaining_ms, outcome, now_ms)

    def _sync_time_up(self, command: SyncTimeUp, outcome: Outcome, now_ms: int) -> None:
        group = self._groups.get(command.group_id)
        if group is not None:
            self._membership.sync_time_up(group, command.generation, outcome, now_ms)

    def _drop_if_traceless(self, group: Group, outcome: Outcome) -> None:
        nobody = group.state is State.EMPTY and not group.pending
        if nobody and not outcome.records and not self.durable.has(group.id):
            del self._groups[group.id]

    # --- offsets ----------------------------------------------------------------------------------------------------

    def _commit(self, command: CommitOffsets, outcome: Outcome, now_ms: int) -> None:
        group = self._groups.get(command.group_id)
        if not _storable(command.group_id):
            outcome.reply = [ErrorCode.invalid_group_id] * len(command.offsets)
            return
        if not self._room.for_offsets(command, now_ms):
            outcome.reply = [ErrorCode.coordinator_not_available] * len(command.offsets)
            return
        consumer = self.durable.consumers.get(command.group_id)
        if consumer is not None:
            self._offsets.keep(command, self._consumers.may_commit(consumer, command), outcome, now_ms)
            return
        if group is None:
            if command.generation >= 0:
                known = command.knows_consumer_groups
                gone = ErrorCode.group_id_not_found if known else ErrorCode.illegal_generation
                outcome.reply = [gone] * len(command.offsets)
                return
            group = Group(command.group_id)
        self._offsets.commit(group, command, outcome, now_ms)
        if ErrorCode.none in outcome.reply:
            self._membership.seen(group, command.member_id, outcome)
        if outcome.records:
            self._groups[group.id] = group

    def _commit_in_transaction(self, command: CommitInTransaction, outcome: Outcome, now_ms: int) -> None:
        group = self._groups.get(command.group_id)
        if not _storable(command.group_id):
            outcome.reply = [ErrorCode.invalid_group_id] * len(command.offsets)
            return
        if not self._room.for_offsets(command, now_ms):
            outcome.reply = [ErrorCode.coordinator_not_available] * len(command.offsets)
            return
        consumer = self.durable.consumers.get(command.group_id)
        if consumer is not None:
            outcome.producer = (command.producer_id, command.producer_epoch)
            self._offsets.keep(command, self._consumers.may_commit(consumer, command), outcome, now_ms)
            return
        if group is None:
            if command.generation >= 0:
                outcome.reply = [ErrorCode.illegal_generation] * len(command.offsets)
                return
            group = Group(command.group_id)
        self._offsets.commit_in_transaction(group, command, outcome, now_ms)
        if outcome.records:
            self._groups[group.id] = group

    def _fetch(self, command: FetchOffsets, outcome: Outcome, now_ms: int) -> None:
        consumer = self.durable.consumers.get(command.group_id)
        problem = self._consumers.may_not_fetch(consumer, command) if consumer is not None else None
        outcome.reply = self._offsets.fetch(command) if problem is None else problem

    def _delete_offsets(self, command: DeleteOffsets, outcome: Outcome, now_ms: int) -> None:
        group = self._groups.get(command.group_id)
        consumer = self.durable.consumers.get(command.group_id)
        if consumer is not None:
            self._offsets.delete_unused(consumer.id, consumer.subscriptions(), command, outcome)
        elif not command.group_id:
            outcome.reply = ErrorCode.invalid_group_id
        elif group is None:
            outcome.reply = ErrorCode.group_id_not_found
        else:
            self._offsets.delete(group, command, outcome)

    def _forget_topic(self, command: ForgetTopic, outcome: Outcome, now_ms: int) -> None:
        kept = self._offsets.orphans(command.topic)
        for group_id, partition in kept[:MAX_RECORDS]:
            outcome.write(offset_tombstone(group_id, command.topic, partition))
        if self._shares.topics.forget_topics(MAX_RECORDS, outcome) or len(kept) > MAX_RECORDS:
            outcome.set_timer(("forget", command.topic), 0, command)

    def _expire_offsets(self, command: ExpireOffsets, outcome: Outcome, now_ms: int) -> None:
        names = (*self._groups, *self.durable.consumers) if command.groups is None else command.groups
        looked_at = 0
        for at, name in enumerate(names):
            if looked_at >= MAX_LOOKS or len(outcome.records) >= MAX_RECORDS:
                outcome.set_timer("expiry", 0, ExpireOffsets(names[at:]))
                return
            group = self._groups.get(name) or self.durable.consumers.get(name)
            if group is not None:
                looked_at += LOOKS_OF_A_GROUP + len(self.durable.offsets_of(name))
                self._expire_offsets_of(group, outcome, now_ms)
        self._shares.topics.forget_topics(MAX_RECORDS, outcome)  # the coordinator crashed during their deletion
        outcome.set_timer("expiry", self._settings.offsets_check_interval_ms, ExpireOffsets())

    def _expire_offsets_of(self, group: Group | ConsumerGroup, outcome: Outcome, now_ms: int) -> None:
        expired = self._offsets.expired(group, now_ms)
        for topic, partition in expired:
            outcome.write(offset_tombstone(group.id, topic, partition))
        pending = any(self.durable.pending.of(group.id))
        nothing_left = len(expired) == len(self.durable.offsets_of(group.id)) and not pending
        if nothing_left and self._is_deserted(group):
            self._forget_group(group.id, outcome)

    def _is_deserted(self, group: Group | ConsumerGroup) -> bool:
        if isinstance(group, ConsumerGroup):
            return not group.members
        return group.state is State.EMPTY and not group.pending

    def _forget_group(self, group_id: str, outcome: Outcome) -> None:
        if self._groups.pop(group_id, None) is not None:
            outcome.write(group_tombstone(group_id))
        self._room.weigh(group_id, None)
        self._consumers.give_up(group_id, outcome)

    # --- from outside -----------------------------------------------------------------------------------------------

    def _list(self, command: ListGroups, outcome: Outcome, now_ms: int) -> None:
        outcome.reply = list(self.listings())

    def _describe(self, command: DescribeGroup, outcome: Outcome, now_ms: int) -> None:
        group = self._groups.get(command.group_id)
        other = command.group_id in self.durable.consumers
        why = f"Group {command.group_id} is not a classic group." if other else f"Group {command.group_id} not found."
        outcome.reply = why if group is None else _description(group)

    def _describe_consumer_group(self, command: DescribeConsumerGroup, outcome: Outcome, now_ms: int) -> None:
        outcome.reply = self._consumers.describe(command.group_id)

    def _delete_group(self, command: DeleteGroup, outcome: Outcome, now_ms: int) -> None:
        group = self._groups.get(command.group_id)
        consumer = self.durable.consumers.get(command.group_id)
        if command.group_id in self.durable.shares:
            self._shares.delete(command.group_id, outcome)
        elif group is None and consumer is None:
            outcome.reply = ErrorCode.group_id_not_found
        elif (group is not None and group.state is not State.EMPTY) or (consumer is not None and consumer.members):
            outcome.reply = ErrorCode.non_empty_group
        else:
            for member_id in group.pending if group is not None else ():
                outcome.cancel_timer(("session", command.group_id, member_id))
            self._offsets.forget_group(command.group_id, outcome)
            self._forget_group(command.group_id, outcome)
            outcome.reply = ErrorCode.none

    def listings(self) -> Iterator[GroupListing]:
        for group in self._groups.values():
            yield GroupListing(group.id, group.protocol_type or "", group.state.value, len(group.members))
        yield from self._consumers.listings()
        yield from self._shares.listings()

    def offsets(self) -> Iterator[tuple[str, str, int, int]]:
        """(group, topic, partition, committed offset) of every committed offset."""
        for group_id, offsets in self.durable.offsets.items():
            for (topic, partition), committed in offsets.items():
                yield group_id, topic, partition, committed.offset


def _storable(text: str) -> bool:
    return len(text.encode()) <= MAX_NAME_BYTES


def _no_group(group_id: str) -> ErrorCode:
    return ErrorCode.unknown_member_id if group_id else ErrorCode.invalid_group_id


def _description(group: Group) -> GroupDescription:
    """Metadata and assignments are shown for a stable group only: during a rebalance they may still change."""
    stable = group.state is State.STABLE
    members = tuple(
        MemberDescription(
            member.id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.metadata(group.protocol) if stable else b"",
            member.assignment if stable else b"",
        )
        for member in group.members.values()
    )
    protocol = (group.protocol or "") if stable else ""
    return GroupDescription(group.state.value, group.protocol_type or "", protocol, members)
