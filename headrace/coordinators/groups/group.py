"""One classic group in memory: its members, its state, and counts that are derived from them.

    Empty ──join──> PreparingRebalance ──all joined──> CompletingRebalance ──leader's sync──> Stable
      ^                 │    ^   ^                            │                                  │
      └──nobody left────┘    │   └────join, leave, expiry─────┘                                  │
                             └────────────join, leave, expiry────────────────────────────────────┘

A group without members, offsets or a stored generation is removed. `rebalance.py` changes these fields; this file only
answers queries and keeps the counts consistent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum

from msgspec import Struct, field

from headrace.coordinators.groups.records import StoredGroup, StoredMember
from headrace.coordinators.groups.subscription import CONSUMER, subscribed_topics
from headrace.wire.errors import ErrorCode

GROUP_BYTES = 1_500  # of one group in memory, without its name and members
MEMBER_BYTES = 1_500  # of one member with its timers, without what it says of itself
PROTOCOL_BYTES = 150  # of one protocol of a member, without its name and metadata
PENDING_BYTES = 1_500  # of one member id that was given out


class State(Enum):
    """The names are those that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class Member(Struct):
    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # the preferred one first
    assignment: bytes = b""
    join_ticket: int | None = None  # its JoinGroup waits for the others
    sync_ticket: int | None = None  # its SyncGroup waits for the leader's plan
    new: bool = True  # in no generation yet

    @property
    def cost_bytes(self) -> int:
        """What it takes in memory, nearly."""
        names = len(self.id) + len(self.instance_id or "") + len(self.client_id)
        return MEMBER_BYTES + names + protocols_bytes(self.protocols)

    def knows(self) -> set[str]:
        return {name for name, _ in self.protocols}

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


class Group(Struct):
    id: str
    state: State = State.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)  # in the order in which they came
    instances: dict[str, str] = field(default_factory=dict)  # static members: instance id -> member id
    pending: set[str] = field(default_factory=set)  # member ids that were given out and have not joined yet
    unsynced: set[str] = field(default_factory=set)  # joined this generation but have not sent SyncGroup yet
    initial: bool = False  # preparing its first generation: in the initial delay
    came_meanwhile: bool = False  # somebody joined during the initial delay
    known_by: Counter[str] = field(default_factory=Counter)  # protocol -> how many members know it
    member_bytes: int = 0  # what the members take in memory

    @property
    def said_bytes(self) -> int:
        """What its members say of themselves."""
        return self.member_bytes - MEMBER_BYTES * len(self.members)

    @property
    def cost_bytes(self) -> int:
        """What it takes in memory, nearly, beside its stored generation."""
        return GROUP_BYTES + len(self.id) + self.member_bytes + PENDING_BYTES * len(self.pending)

    def add(self, member: Member) -> None:
        if not self.members:
            self.leader = None
        self.members[member.id] = member
        self.member_bytes += member.cost_bytes
        self.known_by.update(member.knows())
        self.pending.discard(member.id)
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id

    def remove(self, member: Member) -> None:
        del self.members[member.id]
        self.member_bytes -= member.cost_bytes
        self._forget_protocols_of(member)
        self.unsynced.discard(member.id)
        if member.instance_id is not None and self.instances.get(member.instance_id) == member.id:
            del self.instances[member.instance_id]
        if self.leader == member.id:
            self.leader = next(iter(self.members), None)

    def teach(self, member: Member, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """The member joined again and now supports these protocols."""
        self._forget_protocols_of(member)
        self.member_bytes += protocols_bytes(protocols) - protocols_bytes(member.protocols)
        member.protocols = protocols
        self.known_by.update(member.knows())

    def _forget_protocols_of(self, member: Member) -> None:
        self.known_by.subtract(member.knows())
        self.known_by = +self.known_by  # drops protocols with a count of zero

    def rename(self, old: Member, new_id: str) -> None:
        """A static member came back with a new member id, which replaces the old one."""
        assert old.instance_id is not None
        self.member_bytes += len(new_id) - len(old.id)
        self.members = {new_id if name == old.id else name: member for name, member in self.members.items()}
        self.instances[old.instance_id] = new_id
        if self.leader == old.id:
            self.leader = new_id
        if old.id in self.unsynced:
            self.unsynced.remove(old.id)
            self.unsynced.add(new_id)
        old.id = new_id

    def stranger(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        """Why this is no member of the group, or None when it is one."""
        if instance_id is not None:
            known = self.instances.get(instance_id)
            if known is None:
                return ErrorCode.unknown_member_id
            if known != member_id:
                return ErrorCode.fenced_instance_id
        return None if member_id in self.members else ErrorCode.unknown_member_id

    def joined_count(self) -> int:
        return sum(member.join_ticket is not None for member in self.members.values())

    def all_joined(self) -> bool:
        return not self.pending and self.joined_count() == len(self.members)

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a client with these protocols may join: all members must support one of them."""
        names = set(protocols)
        if not protocol_type or not names:
            return False
        if not self.members:
            return True
        return protocol_type == self.protocol_type and not names.isdisjoint(self._candidates())

    def _candidates(self) -> set[str]:
        """The protocols that every member supports."""
        return {name for name, count in self.known_by.items() if count == len(self.members)}

    def elect_protocol(self) -> str:
        """Each member votes for the first of its protocols that all support; in a tie, the one voted for first wins."""
        candidates = self._candidates()
        votes = Counter(
            next(name for name, _ in member.protocols if name in candidates) for member in self.members.values()
        )
        return max(votes, key=lambda name: votes[name])

    def elect_joined_leader(self) -> bool:
        """Makes sure that the leader is among the members that joined; False if none has."""
        if self.leader is not None and self.members[self.leader].join_ticket is None:
            joined = [member.id for member in self.members.values() if member.join_ticket is not None]
            if not joined:
                return False
            self.leader = joined[0]
        return self.leader is not None

    def subscriptions(self) -> frozenset[str] | None:
        """All topics that its members subscribe to; None if unknown."""
        if not self.members:
            return frozenset()
        if self.protocol_type != CONSUMER or self.protocol is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            subscribed = subscribed_topics(member.metadata(self.protocol))
            if subscribed is None:
                return None
            topics |= subscribed
        return frozenset(topics)

    def roster(self) -> tuple[tuple[str, str | None, bytes], ...]:
        """What the leader needs to compute the assignment: (member, instance, metadata)."""
        return tuple((m.id, m.instance_id, m.metadata(self.protocol)) for m in self.members.values())

    def stored(self, now_ms: int) -> StoredGroup:
        members = tuple(
            StoredMember(
                m.id,
                m.instance_id,
                m.client_id,
                m.client_host,
                m.rebalance_timeout_ms,
                m.session_timeout_ms,
                m.metadata(self.protocol),
                m.assignment,
            )
            for m in self.members.values()
        )
        return StoredGroup(
            self.protocol_type or "", self.generation, self.protocol, self.leader if members else None, now_ms, members
        )


def protocols_bytes(protocols: tuple[tuple[str, bytes], ...]) -> int:
    return sum(PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols)


def restored(group_id: str, stored: StoredGroup | None) -> Group:
    """The group after a restart: a stored generation is stable, its members keep their assignments."""
    group = Group(group_id)
    if stored is None:
        return group
    group.generation = stored.generation
    group.protocol_type = stored.protocol_type or None
    group.protocol = stored.protocol
    for kept in stored.members:
        group.add(
            Member(
                kept.member_id,
                kept.instance_id,
                kept.client_id,
                kept.client_host,
                kept.session_timeout_ms,
                kept.rebalance_timeout_ms,
                ((stored.protocol or "", kept.subscription),),
                kept.assignment,
                new=False,
            )
        )
    if group.members:
        group.state = State.STABLE
        if stored.leader in group.members:
            group.leader = stored.leader
    return group
