"""The share groups of a shard (KIP-932): members and their heartbeats, the plan, and answers about groups.

Called by the groups shard. A share group is a consumer group without reconciliation: partitions are shared, so a member
is told to have its part of the plan at once. Each heartbeat takes the same steps: find the member, store what it says,
look at the topics, make a new plan if one is needed, move the member to it. The errors are Kafka's, because clients
react to each in a fixed way: on FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID and GROUP_ID_NOT_FOUND they join again with the
same id.

A topic that is new to the group is given out once its state is initialized (`share_topics.py`). A member that joins
meanwhile waits for that, so that it does not idle until its next heartbeat. Invariant: nobody waits for longer than
`share_wait_ms`, and a waiting heartbeat of a member is answered before a later one is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headrace.coordinators.groups.assignors.simple import assign_simple
from headrace.coordinators.groups.assignors.wishes import Wish
from headrace.coordinators.groups.commands import GroupListing
from headrace.coordinators.groups.consumer_commands import JOIN, LEAVE
from headrace.coordinators.groups.durable import DurableGroups
from headrace.coordinators.groups.group import Group
from headrace.coordinators.groups.membership_reply import MembershipReply
from headrace.coordinators.groups.offsets import Topics
from headrace.coordinators.groups.planning import hash_of_topics
from headrace.coordinators.groups.settings import GroupSettings
from headrace.coordinators.groups.share_commands import (
    DescribeShareGroup,
    ShareGroupDescription,
    ShareHeartbeat,
    ShareMemberDescription,
    ShareSessionExpired,
    ShareWaitOver,
)
from headrace.coordinators.groups.share_group import SHARE, ShareDraft, ShareGroup
from headrace.coordinators.groups.share_records import ShareCurrent, ShareMember
from headrace.coordinators.groups.share_topics import ShareTopics
from headrace.coordinators.shard import Outcome, Wait
from headrace.model.group_config import ShareGroupConfig, share_group_config
from headrace.wire.errors import ErrorCode, KafkaError

MAX_NAME_BYTES = 0x7FFF  # what the record format has room for
_TOPIC_BYTES = 20  # of a topic's name, at least: more topics than fit are not even counted


class ShareGroups:
    def __init__(
        self, durable: DurableGroups, classic: Mapping[str, Group], settings: GroupSettings, topics: Topics
    ) -> None:
        self._groups = durable.shares
        self._durable = durable
        self._classic = classic
        self._settings = settings
        self._topics = topics
        self._waiting: dict[tuple[str, str], int] = {}  # (group, member) -> ticket
        self._tickets = 0
        self.topics = ShareTopics(durable.shares, settings, topics, self._plan_anew)
        self.rules: dict[type, Callable[[Any, Outcome, int], None]] = {
            DescribeShareGroup: self._describe,
            ShareSessionExpired: self._session_expired,
            ShareWaitOver: self._wait_over,
            **self.topics.rules,
        }

    def loaded(self, outcome: Outcome) -> None:
        """After loading, every member gets a full session timeout, and what was not initialized is tried again."""
        for group in self._groups.values():
            for member_id in group.members:
                self._keep_alive(group, member_id, outcome)
            self.topics.start(group, outcome)

    # --- heartbeats -------------------------------------------------------------------------------------------------

    def heartbeat(self, command: ShareHeartbeat, outcome: Outcome) -> None:
        try:
            self._check(command)
            self._answer_earlier(command, outcome)
            if command.epoch == LEAVE:
                self._leave(command, outcome)
            else:
                self._stay(command, outcome)
        except KafkaError as error:
            outcome.reply = MembershipReply(error.code, error.message or None)

    def _check(self, command: ShareHeartbeat) -> None:
        problem = _bad_request(command)
        if problem is not None:
            raise KafkaError(ErrorCode.invalid_request, problem)
        if len(command.topics or ()) > self._settings.max_group_bytes // _TOPIC_BYTES:
            raise KafkaError(ErrorCode.group_max_size_reached, f"The member names {len(command.topics or ())} topics.")

    def _stay(self, command: ShareHeartbeat, outcome: Outcome) -> None:
        draft = ShareDraft(self._open(command))
        before = self._find(draft.group, command)
        current = draft.group.current(command.member_id)
        now = _said(before, command)
        if before != now:
            draft.put_member(command.member_id, now)
        changed = before is None or before.topics != now.topics
        self._check_size(draft)
        hashed = self._hash(draft.group)
        if changed or hashed != draft.group.metadata_hash:
            draft.put_epoch(draft.group.epoch + 1, hashed)
        self.topics.begin(draft)
        self._make_plan(draft)
        self._advance(draft, command.member_id)
        draft.carry_into(outcome)
        group = draft.group
        self.topics.start(group, outcome)
        self._keep_alive(group, command.member_id, outcome)
        if changed and group.awaits(now.topics):
            outcome.reply = self._wait(command, outcome)
            return
        news = command.epoch == JOIN or current.assigned != group.current(command.member_id).assigned
        outcome.reply = self._reply(group, command.member_id, with_assignment=news)

    def _open(self, command: ShareHeartbeat) -> ShareGroup:
        """The existing group, or a new one."""
        found = self._groups.get(command.group_id)
        if found is not None:
            return found
        if command.epoch != JOIN or command.group_id in self._classic or self._durable.has(command.group_id):
            raise KafkaError(ErrorCode.group_id_not_found, f"Group {command.group_id} is not a share group.")
        return ShareGroup(command.group_id)

    def _find(self, group: ShareGroup, command: ShareHeartbeat) -> ShareMember | None:
        """The member that sends this heartbeat; None for a new one."""
        found = group.members.get(command.member_id)
        if found is None:
            if command.epoch != JOIN:
                words = f"{command.member_id} is not a member of group {group.id}."
                raise KafkaError(ErrorCode.unknown_member_id, words)
            if len(group.members) >= self._settings.share_max_size:
                words = f"The group has its {self._settings.share_max_size} members, as many as it may have."
                raise KafkaError(ErrorCode.group_max_size_reached, words)
            return None
        current = group.current(command.member_id)
        # The previous epoch is accepted too: the response with the current one may have been lost.
        if command.epoch not in (JOIN, current.epoch, current.previous_epoch):
            raise KafkaError(
                ErrorCode.fenced_member_epoch,
                f"The member sends epoch {command.epoch}, the coordinator has {current.epoch}. The member must let go "
                "of all its partitions and join again.",
            )
        return found

    def _check_size(self, draft: ShareDraft) -> None:
        group_id, most = draft.group.id, self._settings.max_group_bytes
        before, after = self._durable.said_bytes(group_id), self._durable.said_bytes(group_id, draft.records)
        if after > max(most, before):
            words = f"The group would take more than the {most} bytes that headrace.group.max.bytes allows."
            raise KafkaError(ErrorCode.group_max_size_reached, words)

    # --- the plan ---------------------------------------------------------------------------------------------------

    def _make_plan(self, draft: ShareDraft) -> None:
        """Computes the plan for the group's epoch if there is none yet; only changed parts are written."""
        group, topics = draft.group, self._topics.image().topics
        if group.epoch <= group.plan_epoch:
            return
        ready = self.topics.ready(group)
        wishes = {
            member_id: Wish(
                frozenset(topics[name].id for name in member.topics if name in topics),
                group.targets.get(member_id, {}),
            )
            for member_id, member in group.members.items()
        }
        for member_id, parts in assign_simple(wishes, ready).items():
            if group.targets.get(member_id) != parts:
                draft.put_target(member_id, parts)
        draft.put_plan_epoch(group.epoch)

    def _advance(self, draft: ShareDraft, member_id: str) -> None:
        group = draft.group
        current = group.current(member_id)
        if current.epoch != group.plan_epoch:
            target = group.targets.get(member_id, {})
            draft.put_current(member_id, ShareCurrent(group.plan_epoch, current.epoch, target))

    def _hash(self, group: ShareGroup) -> int:
        return hash_of_topics(group.subscriptions(), self._topics.image())

    def _plan_anew(self, draft: ShareDraft, outcome: Outcome) -> None:
        """More or fewer partitions may be given out. Members that wait are told at once, others when they ask."""
        group = draft.group
        draft.put_epoch(group.epoch + 1, self._hash(draft.group))
        if draft.group.members:
            self._make_plan(draft)
        for group_id, member_id in [place for place in self._waiting if place[0] == group.id]:
            if not draft.group.awaits(draft.group.members[member_id].topics):
                self._advance(draft, member_id)
                self._wake(group_id, member_id, self._reply(draft.group, member_id, with_assignment=True), outcome)

    # --- waiting ----------------------------------------------------------------------------------------------------

    def _wait(self, command: ShareHeartbeat, outcome: Outcome) -> Wait:
        self._tickets += 1
        place = (command.group_id, command.member_id)
        self._waiting[place] = self._tickets
        outcome.set_timer(("share wait", *place), self._settings.share_wait_ms, ShareWaitOver(*place))
        return Wait(self._tickets)

    def _wake(self, group_id: str, member_id: str, reply: MembershipReply, outcome: Outcome) -> None:
        ticket = self._waiting.pop((group_id, member_id), None)
        if ticket is not None:
            outcome.cancel_timer(("share wait", group_id, member_id))
            outcome.wake(ticket, reply)

    def _wait_over(self, command: ShareWaitOver, outcome: Outcome, now_ms: int) -> None:
        group = self._groups.get(command.group_id)
        if group is not None and command.member_id in group.members:
            reply = self._reply(group, command.member_id, with_assignment=True)
            self._wake(command.group_id, command.member_id, reply, outcome)

    def _answer_earlier(self, command: ShareHeartbeat, outcome: Outcome) -> None:
        """The member asks again while an earlier heartbeat of it waits."""
        self._wait_over(ShareWaitOver(command.group_id, command.member_id), outcome, 0)

    def _reply(self, group: ShareGroup, member_id: str, *, with_assignment: bool) -> MembershipReply:
        current = group.current(member_id)
        return MembershipReply(
            member_id=member_id,
            epoch=current.epoch,
            heartbeat_interval_ms=self._config(group.id).share_heartbeat_ms,
            assignment=current.assigned if with_assignment else None,
        )

    # --- leaving ----------------------------------------------------------------------------------------------------

    def _leave(self, command: ShareHeartbeat, outcome: Outcome) -> None:
        group = self._groups.get(command.group_id)
        if group is None:
            raise KafkaError(ErrorCode.group_id_not_found, f"Group {command.group_id} is not a share group.")
        if command.member_id not in group.members:
            words = f"{command.member_id} is not a member of group {group.id}."
            raise KafkaError(ErrorCode.unknown_member_id, words)
        self._put_out(group, command.member_id, outcome)
        outcome.cancel_timer(("share session", group.id, command.member_id))
        outcome.reply = MembershipReply(member_id=command.member_id, epoch=LEAVE)

    def _session_expired(self, command: ShareSessionExpired, outcome: Outcome, now_ms: int) -> None:
        group = self._groups.get(command.group_id)
        if group is not None and command.member_id in group.members:
            gone = MembershipReply(ErrorCode.unknown_member_id, "The member's session has expired.")
            self._wake(group.id, command.member_id, gone, outcome)
            self._put_out(group, command.member_id, outcome)

    def _put_out(self, group: ShareGroup, member_id: str, outcome: Outcome) -> None:
        """The next heartbeat of any member makes a plan without it."""
        draft = ShareDraft(group)
        draft.remove_member(member_id)
        draft.put_epoch(draft.group.epoch + 1, self._hash(draft.group))
        draft.carry_into(outcome)

    def _keep_alive(self, group: ShareGroup, member_id: str, outcome: Outcome) -> None:
        """Start the member's session anew."""
        timeout_ms = self._config(group.id).share_session_timeout_ms
        expired = ShareSessionExpired(group.id, member_id)
        outcome.set_timer(("share session", group.id, member_id), timeout_ms, expired)

    def _config(self, group_id: str) -> ShareGroupConfig:
        image = self._topics.image()
        return share_group_config(image.group_settings.get(group_id, {}), self._settings.file.in_force(image))

    def delete(self, group_id: str, outcome: Outcome) -> None:
        """Removes an empty group, once nothing of it is left at the share coordinator."""
        group = self._groups[group_id]
        draft = ShareDraft(group)
        if group.members:
            outcome.reply = ErrorCode.non_empty_group
        elif group.topics:
            outcome.reply = self.topics.forget_all(draft)
        else:
            draft.remove_group()
            outcome.cancel_timer(("share states", group_id))
            outcome.reply = ErrorCode.none
        draft.carry_into(outcome)

    # --- questions --------------------------------------------------------------------------------------------------

    def listings(self) -> Iterator[GroupListing]:
        for group in self._groups.values():
            yield GroupListing(group.id, SHARE, group.state().value, len(group.members), SHARE)

    def _describe(self, command: DescribeShareGroup, outcome: Outcome, now_ms: int) -> None:
        group_id = command.group_id
        group = self._groups.get(group_id)
        if not group_id:
            outcome.reply = ShareGroupDescription(ErrorCode.invalid_group_id, "GroupId can't be empty.")
            return
        if group is None:
            other = group_id in self._classic or group_id in self._durable.consumers
            words = f"Group {group_id} is not a share group." if other else f"Group {group_id} not found."
            outcome.reply = ShareGroupDescription(ErrorCode.group_id_not_found, words)
            return
        members = []
        for member_id, member in group.members.items():
            current = group.current(member_id)
            said = (member.client_id, member.client_host, member.topics)
            members.append(ShareMemberDescription(member_id, member.rack, current.epoch, *said, current.assigned))
        outcome.reply = ShareGroupDescription(
            state=group.state().value, epoch=group.epoch, plan_epoch=group.plan_epoch, members=tuple(members)
        )


def _said(before: ShareMember | None, command: ShareHeartbeat) -> ShareMember:
    """The member's updated subscription: what it does not send is unchanged."""
    known = before or ShareMember(command.client_id, command.client_host)
    return ShareMember(
        client_id=command.client_id,
        client_host=command.client_host,
        rack=known.rack if command.rack is None else command.rack,
        topics=known.topics if command.topics is None else tuple(sorted(set(command.topics))),
    )


def _bad_request(command: ShareHeartbeat) -> str | None:
    """Errors of the request itself, whatever the group."""
    if not command.member_id.strip():
        return "MemberId can't be empty."
    if not command.group_id.strip():
        return "GroupId can't be empty."
    if command.rack is not None and not command.rack.strip():
        return "RackId can't be empty."
    if not all(len(name.encode()) <= MAX_NAME_BYTES for name in (command.group_id, command.member_id)):
        return f"A name has at most {MAX_NAME_BYTES} bytes."
    if command.epoch == JOIN and not command.topics:
        return "SubscribedTopicNames must be set in first request."
    return "MemberEpoch is invalid." if command.epoch < LEAVE else None
