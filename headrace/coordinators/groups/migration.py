"""Online migration of a group (KIP-848): a classic group becomes a consumer group, and back.

Upgrade: the first member of the new protocol that joins a classic group of consumers turns it into a consumer group.
The other members stay as classic members, keep their partitions, and are told to join again. Downgrade: when the last
member of the new protocol leaves and classic members remain, they become a classic group again, which rebalances.
`group.consumer.migration.policy` says which of the two is allowed. Pure translations; `consumer_groups.py` decides
when.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.coordinators.groups.classic_members import ids_of, names_of
from headrace.coordinators.groups.consumer_group import ConsumerGroup
from headrace.coordinators.groups.consumer_records import TARGET, ClassicFacet, Subscription
from headrace.coordinators.groups.draft import Draft
from headrace.coordinators.groups.group import Group, Member, State
from headrace.coordinators.groups.reconciliation import CurrentAssignment, MemberState, Parts
from headrace.coordinators.groups.subscription import (
    CONSUMER,
    read_assignment,
    read_subscription,
    write_assignment,
)
from headrace.model.image import ClusterImage
from headrace.wire.errors import Malformed

POLICIES: Mapping[str, tuple[bool, bool]] = {  # may it go up, may it go down
    "disabled": (False, False),
    "upgrade": (True, False),
    "downgrade": (False, True),
    "bidirectional": (True, True),
}


def moved_up(group: Group, image: ClusterImage, now_ms: int) -> Draft | None:
    """The classic group as a consumer group of classic members; None if its members are not plain consumers."""
    if group.protocol_type != CONSUMER:
        return None
    draft = Draft(ConsumerGroup(group.id))
    try:
        for member in group.members.values():
            embedded = read_subscription(member.metadata(group.protocol) or member.protocols[0][1])
            has = ids_of(read_assignment(member.assignment), image) if member.assignment else {}
            _seat(draft, member, embedded.topics, embedded.rack, has, group.generation)
    except Malformed:
        return None
    draft.put_epoch(group.generation, 0)
    draft.put_plan_epoch(group.generation, now_ms)
    return draft


def _seat(draft: Draft, member: Member, topics: tuple[str, ...], rack: str | None, has: Parts, epoch: int) -> None:
    subscription = Subscription(
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=member.instance_id,
        rack=rack,
        topics=tuple(sorted(set(topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicFacet(member.session_timeout_ms, member.protocols),
    )
    held = {topic_id: dict.fromkeys(partitions, epoch) for topic_id, partitions in has.items()}
    draft.put_member(member.id, subscription)
    draft.put(TARGET, member.id, has)
    draft.put_current(member.id, CurrentAssignment(epoch, epoch, MemberState.STABLE, held, {}))


def moved_down(group: ConsumerGroup, image: ClusterImage) -> Group:
    """The classic members of a consumer group as a classic group, with their parts of the last target assignment."""
    classic = Group(group.id)
    classic.state, classic.generation, classic.protocol_type = State.STABLE, group.epoch, CONSUMER
    for member_id, member in group.classic_members().items():
        assert member.classic is not None
        version = read_subscription(member.classic.protocols[0][1]).version
        parts = names_of(group.targets.get(member_id, {}), image)
        classic.add(
            Member(
                member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.classic.session_timeout_ms,
                member.rebalance_timeout_ms,
                member.classic.protocols,
                write_assignment(version, parts),
                new=False,
            )
        )
    classic.protocol = classic.elect_protocol()
    return classic
