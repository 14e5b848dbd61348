"""Members that speak the classic protocol in a consumer group: JoinGroup, SyncGroup and Heartbeat on the
new state, so that a group can be moved from one protocol to the other member by member.

Such a member gets its assignment by JoinGroup and SyncGroup, and gives up partitions by joining again without them: its
heartbeat is answered with REBALANCE_IN_PROGRESS whenever it has to join again. Its generation is its member epoch.
There is no group leader: the broker computes the assignment. The member has its rebalance timeout to join again, and
the same time again to sync. Called by `consumer_groups.py` with the group looked up.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.coordinators.groups.commands import Heartbeat, Join, JoinReply, Sync, SyncReply
from headrace.coordinators.groups.consumer_commands import ClassicMemberTimeUp
from headrace.coordinators.groups.consumer_group import ConsumerGroup
from headrace.coordinators.groups.consumer_membership import ConsumerMembership
from headrace.coordinators.groups.consumer_records import ClassicFacet, Subscription
from headrace.coordinators.groups.draft import Draft
from headrace.coordinators.groups.membership import new_member_id
from headrace.coordinators.groups.offsets import Topics
from headrace.coordinators.groups.reconciliation import MemberState, Parts, parts_of
from headrace.coordinators.groups.subscription import CONSUMER, read_subscription, write_assignment
from headrace.coordinators.shard import Outcome
from headrace.model.image import ClusterImage
from headrace.wire.errors import ErrorCode, KafkaError, Malformed
from headrace.world.entropy import Entropy


class ClassicMembers:
    def __init__(self, membership: ConsumerMembership, topics: Topics, entropy: Entropy) -> None:
        self._membership = membership
        self._topics = topics
        self._entropy = entropy
        self._awaited: set[tuple[str, str]] = set()  # (group, member): told to join again, the time is running

    # --- joining ----------------------------------------------------------------------------------------------------

    def join(self, draft: Draft, command: Join, outcome: Outcome, now_ms: int) -> None:
        """Raises KafkaError when the member may not join."""
        self._membership.check_room(draft.group, command.member_id)
        if not _speaks_with_all(draft.group, command):
            raise KafkaError(ErrorCode.inconsistent_group_protocol)
        member_id = command.member_id or new_member_id(command, self._entropy)
        if not command.member_id and command.instance_id is None and command.needs_member_id:
            outcome.reply = JoinReply(ErrorCode.member_id_required, member_id)
            return
        before = self._find(draft, member_id, command)
        try:
            embedded = read_subscription(command.protocols[0][1])
        except Malformed as error:
            raise KafkaError(ErrorCode.inconsistent_group_protocol, str(error)) from None
        said = Subscription(
            client_id=command.client_id,
            client_host=command.client_host,
            instance_id=command.instance_id,
            rack=embedded.rack or (before.rack if before is not None else None),
            topics=tuple(sorted(set(embedded.topics))),
            rebalance_timeout_ms=command.rebalance_timeout_ms,
            assignor=before.assignor if before is not None else None,
            classic=ClassicFacet(command.session_timeout_ms, command.protocols),
        )
        changed = self._membership.subscribe(draft, member_id, before, said)
        self._membership.advance(draft, member_id, changed, ids_of(embedded.owned, self._topics.image()), now_ms)
        self._stop_awaiting(draft.group.id, member_id, outcome)
        outcome.cancel_timer(("revocation", draft.group.id, member_id))
        self._membership.keep_alive(draft.group, member_id, outcome)
        time_up = ClassicMemberTimeUp(draft.group.id, member_id)
        outcome.set_timer(("resync", draft.group.id, member_id), command.rebalance_timeout_ms, time_up)
        outcome.reply = JoinReply(
            member_id=member_id,
            generation=draft.group.current(member_id).epoch,
            protocol_type=CONSUMER,
            protocol=command.protocols[0][0],
        )

    def _find(self, draft: Draft, member_id: str, command: Join) -> Subscription | None:
        group, instance_id = draft.group, command.instance_id
        if instance_id is None:
            return group.members.get(member_id)
        if not command.member_id:
            former_id = group.instances.get(instance_id)
            if former_id is None:
                return None
            former = group.members[former_id]
            self._membership.hand_over(draft, former_id, member_id)
            return former
        problem = group.stranger(member_id, instance_id)
        if problem is not None:
            raise KafkaError(problem)
        return group.members[member_id]

    # --- being a member ---------------------------------------------------------------------------------------------

    def sync(self, group: ConsumerGroup, command: Sync, outcome: Outcome) -> None:
        member = _classic_member(group, command.member_id, command.instance_id, command.generation)
        assert member.classic is not None
        protocol, metadata = member.classic.protocols[0]
        if command.protocol_type not in (None, CONSUMER) or command.protocol not in (None, protocol):
            raise KafkaError(ErrorCode.inconsistent_group_protocol)
        current = group.current(command.member_id)
        if group.epoch > current.epoch and current.state is not MemberState.UNREVOKED:
            self._await(group, command.member_id, outcome)
            raise KafkaError(ErrorCode.rebalance_in_progress)
        outcome.cancel_timer(("resync", group.id, command.member_id))
        self._membership.keep_alive(group, command.member_id, outcome)
        named = names_of(parts_of(current.assigned), self._topics.image())
        outcome.reply = SyncReply(
            protocol_type=command.protocol_type,
            protocol=command.protocol,
            assignment=write_assignment(read_subscription(metadata).version, named),
        )

    def heartbeat(self, group: ConsumerGroup, command: Heartbeat, outcome: Outcome) -> None:
        _classic_member(group, command.member_id, command.instance_id, command.generation)
        self._membership.keep_alive(group, command.member_id, outcome)
        outcome.reply = ErrorCode.none
        if _has_something_to_do(group, command.member_id):
            self._await(group, command.member_id, outcome)
            outcome.reply = ErrorCode.rebalance_in_progress

    # --- time -------------------------------------------------------------------------------------------------------

    def _await(self, group: ConsumerGroup, member_id: str, outcome: Outcome) -> None:
        """The time to join again runs from the first time that the member was told."""
        if (group.id, member_id) not in self._awaited:
            self._awaited.add((group.id, member_id))
            timeout_ms = group.members[member_id].rebalance_timeout_ms
            outcome.set_timer(("rejoin", group.id, member_id), timeout_ms, ClassicMemberTimeUp(group.id, member_id))

    def _stop_awaiting(self, group_id: str, member_id: str, outcome: Outcome) -> None:
        self._awaited.discard((group_id, member_id))
        outcome.cancel_timer(("rejoin", group_id, member_id))

    def forget(self, group_id: str, member_id: str) -> None:
        self._awaited.discard((group_id, member_id))


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> Subscription:
    """The member, if it is one and speaks the classic protocol; else raises KafkaError."""
    problem = group.stranger(member_id, instance_id)
    if problem is None and group.members[member_id].classic is None:
        problem = ErrorCode.unknown_member_id
    if problem is None and generation != group.current(member_id).epoch:
        problem = ErrorCode.illegal_generation
    if problem is not None:
        raise KafkaError(problem)
    return group.members[member_id]


def _speaks_with_all(group: ConsumerGroup, command: Join) -> bool:
    """All classic members must share a protocol; otherwise they could not continue alone as a classic group."""
    members = [member.classic for member in group.members.values() if member.classic is not None]
    common = {name for name, _ in command.protocols}
    for member in members:
        common &= {name for name, _ in member.protocols}
    return command.protocol_type == CONSUMER and bool(common)


def _has_something_to_do(group: ConsumerGroup, member_id: str) -> bool:
    """A new plan, partitions to let go of, or partitions that are free by now."""
    current = group.current(member_id)
    if current.epoch < group.epoch or current.state is MemberState.UNREVOKED:
        return True
    if current.state is not MemberState.UNRELEASED:
        return False
    awaited = (
        (topic_id, partition)
        for topic_id, partitions in group.targets.get(member_id, {}).items()
        for partition in partitions - current.assigned.get(topic_id, {}).keys()
    )
    return all(group.owner(topic_id, partition) in (None, member_id) for topic_id, partition in awaited)


def ids_of(named: Mapping[str, frozenset[int]], image: ClusterImage) -> Parts:
    return {image.topics[name].id: partitions for name, partitions in named.items() if name in image.topics}


def names_of(parts: Parts, image: ClusterImage) -> dict[str, frozenset[int]]:
    known = image.topics_by_id
    return {known[topic_id].name: partitions for topic_id, partitions in parts.items() if topic_id in known}
