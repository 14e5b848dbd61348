"""A group changes its kind while it lives (KIP-848): a classic group becomes a consumer group, and back.

Up: the first member of the new protocol that joins a classic group of consumers turns it into a consumer group; the
others stay in it as guests, with the partitions they have, and are told to join again. Down: when the last member of
the new protocol goes and guests remain, they become a classic group again, which rebalances. Which of the two is
allowed says `group.consumer.migration.policy`. Pure translations; the consumer groups' door decides when.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.coordinators.groups.consumer_group import ConsumerGroup
from headrace.coordinators.groups.consumer_records import TARGET, ClassicFacet, Subscription
from headrace.coordinators.groups.draft import Draft
from headrace.coordinators.groups.group import Group, Member, State
from headrace.coordinators.groups.guests import ids_of, names_of
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
    """The classic group as a consumer group in which all members are guests; None: they are no plain consumers."""
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
    """The guests of a consumer group as a classic group, with the parts that the last plan gave them."""
    classic = Group(group.id)
    classic.state, classic.generation, classic.protocol_type = State.STABLE, group.epoch, CONSUMER
    for member_id, guest in group.classic_members().items():
        assert guest.classic is not None
        version = read_subscription(guest.classic.protocols[0][1]).version
        parts = names_of(group.targets.get(member_id, {}), image)
        classic.add(
            Member(
                member_id,
                guest.instance_id,
                guest.client_id,
                guest.client_host,
                guest.classic.session_timeout_ms,
                guest.rebalance_timeout_ms,
                guest.classic.protocols,
                write_assignment(version, parts),
                new=False,
            )
        )
    classic.protocol = classic.elect_protocol()
    return classic
