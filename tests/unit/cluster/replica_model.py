"""A slow, obvious model of one replicated partition: logs are lists, the wire is a copy, time is the order of calls.

It plays leaders, followers and a controller against the rules of `cluster/election.py` from one seed, with crashes that
lose what was not flushed, clean stops, lost sessions and views that lag behind. It keeps what was committed and says so
(`Lost`) when a broker begins to lead without all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from msgspec.structs import replace

from headrace.cluster import election
from headrace.cluster.election import Terms
from headrace.model.image import NO_LEADER, BrokerImage, PartitionImage


class Lost(AssertionError):
    """A leader lacks a record that was committed."""


@dataclass
class Member:
    """One broker: its process, and its disk."""

    id: int
    epoch: int = 0
    unbroken_since: int = 0
    running: bool = True
    log: list[tuple[int, int]] = field(default_factory=list)  # (leader epoch, record)
    flushed: int = 0
    state: PartitionImage | None = None  # what it knows of the partition
    leads_epoch: int | None = None
    epoch_start: int = 0
    acked: dict[int, tuple[int, int]] = field(default_factory=dict)  # follower -> (broker epoch, end), in this epoch

    @property
    def image(self) -> BrokerImage:
        return BrokerImage(self.id, "", 0, None, self.epoch, self.unbroken_since)


class ReplicaModel:
    def __init__(self, seed: int, terms: Terms, *, replicas: int = 3, forgets: bool, recovers: bool) -> None:
        self.chance = Random(seed)
        self.terms = terms
        self.forgets = forgets  # a crash may lose what was not flushed
        self.recovers = recovers  # the controller asks for the longest log when nobody can be trusted
        self.members = {number: Member(number) for number in range(1, replicas + 1)}
        self.seen = {member.id: member.image for member in self.members.values()}  # by the controller
        self.stored = election.first_state(0, tuple(self.members), self.seen)
        self.committed: list[tuple[int, int]] = []
        self.next_record = 0
        self.elections = 0

    def play(self, steps: int) -> None:
        anybody = (self.crash, self.stop, self.lose_session, self.flush, *[self.start] * 6)
        for _ in range(steps):
            dice = self.chance.random()
            if dice < 0.12:
                self.chance.choice(anybody)(self.chance.choice(list(self.members.values())))
            elif dice < 0.15:
                self._everybody(self.shrink)
            elif dice < 0.25:
                self.settle()
            else:
                self._everybody(self.chance.choice((self.append, self.fetch, self.commit, self.join, self.read_state)))
                self._everybody(self.watch)

    def _everybody(self, act: Callable[[Member], None]) -> None:
        """Each with a chance of two thirds, so that some lag behind."""
        for member in self.members.values():
            if self.chance.random() < 0.67:
                act(member)

    def heal(self) -> None:
        """Everybody comes back and everything that is under way is finished, several times over."""
        for _ in range(4):
            for member in self.members.values():
                self.start(member)
                self.watch(member)
            self.settle()
            for _ in range(9):
                for act in (self.read_state, self.fetch, self.fetch, self.join, self.commit):
                    for member in self.members.values():
                        act(member)

    # --- leader and followers ---------------------------------------------------------------------------------------

    def read_state(self, member: Member) -> None:
        if not member.running:
            return
        member.state = self.stored
        mine = dict(election.entries(self.stored)).get(member.id)
        if self.stored.leader != member.id or mine != member.epoch:
            member.leads_epoch = None
        elif member.leads_epoch != self.stored.leader_epoch:
            member.leads_epoch = self.stored.leader_epoch
            member.epoch_start = len(member.log)
            member.acked = {}
            self.elections += 1
            if member.log[: len(self.committed)] != self.committed:
                raise Lost(f"broker {member.id} leads epoch {member.leads_epoch} without all of {self.committed}")

    def append(self, member: Member) -> None:
        if member.running and member.leads_epoch is not None:
            self.next_record += 1
            member.log.append((member.leads_epoch, self.next_record))
            if member.id in self.terms.synced:
                member.flushed = len(member.log)

    def fetch(self, member: Member) -> None:
        """A follower makes its log that of its leader, if both mean the same epoch."""
        if not member.running or member.state is None or member.state.leader in (NO_LEADER, member.id):
            return
        leader = self.members[member.state.leader]
        if not leader.running or leader.leads_epoch != member.state.leader_epoch:
            return
        same = 0
        for ours, theirs in zip(member.log, leader.log, strict=False):
            if ours != theirs:
                break
            same += 1
        member.flushed = min(member.flushed, same)
        all_of_it = self.chance.random() < 0.67
        member.log[same:] = leader.log[same : None if all_of_it else self.chance.randint(same, len(leader.log))]
        if member.id in self.terms.synced:
            member.flushed = len(member.log)
        leader.acked[member.id] = (member.epoch, len(member.log))

    def commit(self, member: Member) -> None:
        state = member.state
        if not member.running or member.leads_epoch is None or state is None:
            return
        if len(state.isr) < state.enough_in_sync(self.terms.min_isr) or state.elr:
            return
        ends = [len(member.log)]
        for broker, epoch in election.entries(state):
            if broker != member.id:
                acked = member.acked.get(broker)
                if acked is None or acked[0] != epoch:
                    return
                ends.append(acked[1])
        if min(ends) > len(self.committed):
            self.committed = member.log[: min(ends)]

    def join(self, member: Member) -> None:
        """Followers that have caught up are taken into the ISR, if the leader's knowledge of the state is current."""
        state = member.state
        if not member.running or member.leads_epoch is None or state is None or state.version != self.stored.version:
            return
        wanted = election.entries(state)
        for broker, (epoch, end) in member.acked.items():
            caught_up = end >= max(len(self.committed), member.epoch_start)
            if broker not in state.isr and caught_up and self.members[broker].epoch == epoch:
                wanted.append((broker, epoch))
        self._write(member, wanted)

    def shrink(self, member: Member) -> None:
        state = member.state
        if not member.running or member.leads_epoch is None or state is None or state.version != self.stored.version:
            return
        self._write(member, [e for e in election.entries(state) if e[0] == member.id or self.chance.random() < 0.5])

    def _write(self, leader: Member, wanted: list[tuple[int, int]]) -> None:
        assert leader.state is not None
        self._store(election.with_isr(leader.state, wanted, self.terms))
        leader.state = self.stored

    # --- life and death ---------------------------------------------------------------------------------------------

    def flush(self, member: Member) -> None:
        member.flushed = len(member.log)

    def crash(self, member: Member) -> None:
        if member.running:
            member.running, member.state, member.leads_epoch = False, None, None
            if self.forgets:
                del member.log[self.chance.randint(member.flushed, len(member.log)) :]
            member.flushed = len(member.log)
            member.unbroken_since = member.epoch + 1

    def stop(self, member: Member) -> None:
        if member.running:
            member.running, member.state, member.leads_epoch = False, None, None
            member.flushed = len(member.log)

    def start(self, member: Member) -> None:
        if not member.running:
            member.running = True
            member.epoch += 1

    def lose_session(self, member: Member) -> None:
        if member.running:
            member.epoch += 1
            member.leads_epoch = None

    # --- the controller ---------------------------------------------------------------------------------------------

    def watch(self, member: Member) -> None:
        """The controller hears of one broker; of others it may still believe what was."""
        if member.running:
            self.seen[member.id] = member.image
        else:
            self.seen.pop(member.id, None)

    def settle(self) -> None:
        self._store(election.settled(self.stored, self.seen, self.terms))
        if self.recovers and election.can_recover(self.stored, self.seen, unclean=False):
            asked = [self.members[broker] for broker in self.seen if self.members[broker].running]
            ends = {one.id: (one.log[-1][0] if one.log else -1, len(one.log)) for one in asked}
            self._store(election.recover(self.stored, ends, self.seen, unclean=False) or self.stored)

    def _store(self, state: PartitionImage) -> None:
        if state is not self.stored:
            self.stored = replace(state, version=state.version + 1)


def sound(state: PartitionImage) -> bool:
    """What holds of every stored state."""
    members, eligible = set(state.isr), {broker for broker, _ in state.elr}
    return (
        members | eligible <= set(state.replicas)
        and not members & eligible
        and (state.leader in members or (state.leader == NO_LEADER and not members))
        and len(state.isr_epochs) == len(state.isr)
    )
