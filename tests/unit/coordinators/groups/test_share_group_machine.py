"""Whatever happens to a share group, its journal says all of it, and in the end every partition has somebody.

Hypothesis makes up heartbeats, answers of the share coordinator in any order, failures, other topics and reloads.
Replies, timers and follow-ups are carried out as the runtime would, but by hand, so that a failing history is a short
list.
"""

import uuid
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.coordinators.groups.commands import DeleteGroup, ForgetTopic
from headrace.coordinators.groups.membership_reply import MembershipReply
from headrace.coordinators.groups.settings import GroupSettings
from headrace.coordinators.groups.shard import GroupShard
from headrace.coordinators.groups.share_commands import (
    InitializeStates,
    PrepareForget,
    PrepareSeek,
    ShareHeartbeat,
    StatesDeleted,
    StatesFailed,
    StatesInitialized,
    StatesInTheWay,
    StatesOf,
    StatesPut,
    StateWork,
)
from headrace.coordinators.groups.share_group import ShareGroup
from headrace.coordinators.shard import Alarm, Outcome, Record, Wait
from headrace.model.topic_partition import TopicPartition
from headrace.wire.errors import ErrorCode
from headrace.world.entropy import SeededEntropy
from tests.unit.coordinators.stage import Cluster

GROUP = "s"
MEMBERS = st.sampled_from(["a", "b", "c", "d", "e", "f"])
TOPICS = st.sampled_from(["t", "u"])
Place = tuple[uuid.UUID, int]


def picture(group: ShareGroup) -> dict[str, Any]:
    return {name: value for name, value in vars(group).items() if value}


class ShareGroupMachine(RuleBasedStateMachine):
    @initialize(max_size=st.sampled_from([3, 200]))
    def start(self, max_size: int) -> None:
        self.settings = GroupSettings(share_max_size=max_size)
        self.cluster = Cluster({"t": {}, "u": {}})
        self.journal: list[Record] = []
        self.now_ms = 0
        self.epochs: dict[str, int] = {}  # of each member, as it was told
        self.states: dict[Place, int] = {}  # what the share coordinator has: the state epoch by partition
        self.load()

    def new_shard(self) -> tuple[GroupShard, Outcome]:
        shard = GroupShard(self.settings, self.cluster, SeededEntropy(1))
        for record in self.journal:
            shard.apply(*record)
        return shard, shard.loaded(self.now_ms)

    def load(self) -> None:
        self.timers: dict[object, tuple[int, Any]] = {}
        self.waiting: dict[int, str] = {}  # ticket -> member
        self.work: list[StateWork] = []
        self.shard, outcome = self.new_shard()
        self.carry_out(outcome, None)

    def decide(self, command: Any, member: str | None = None) -> Any:
        outcome = self.shard.decide(command, self.now_ms)
        self.carry_out(outcome, member)
        return outcome.reply

    def carry_out(self, outcome: Outcome, member: str | None) -> None:
        for record in outcome.records:
            self.journal.append(record)
            self.shard.apply(*record)
        self.work += outcome.follow_ups
        for name, alarm in outcome.timers.items():
            self.timers.pop(name, None)
            if isinstance(alarm, Alarm):
                self.timers[name] = (self.now_ms + alarm.delay_ms, alarm.command)
        if isinstance(outcome.reply, Wait):
            assert member is not None
            self.waiting[outcome.reply.ticket] = member
        elif member is not None:
            self.told(member, outcome.reply)
        for ticket, reply in outcome.instructions:
            self.told(self.waiting.pop(ticket), reply)

    def told(self, member: str, reply: MembershipReply) -> None:
        if reply.error is ErrorCode.none and reply.epoch >= 0:
            self.epochs[member] = reply.epoch
        else:
            self.epochs.pop(member, None)

    @property
    def group(self) -> ShareGroup:
        return self.shard.durable.shares.get(GROUP, ShareGroup(GROUP))

    # --- what can happen --------------------------------------------------------------------------------------------

    @rule(member=MEMBERS, topics=st.none() | st.sets(TOPICS, min_size=1).map(sorted).map(tuple))
    def beat(self, member: str, topics: tuple[str, ...] | None) -> None:
        epoch = self.epochs.get(member, 0)
        said = topics or ("t",) if epoch == 0 else topics
        self.decide(ShareHeartbeat(GROUP, member, epoch, member, "/h", None, said), member)

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        self.decide(ShareHeartbeat(GROUP, member, -1, member, "/h", None, None), member)

    @rule(at=st.integers(0, 3), works=st.booleans())
    def share_coordinator_answers(self, at: int, works: bool) -> None:
        if not self.work:
            return
        work = self.work.pop(at % len(self.work))
        if not works or not self.put(work):
            self.decide(StatesFailed(GROUP, work.states.topic_id))
        elif isinstance(work, InitializeStates):
            self.decide(StatesInitialized(GROUP, work.states))
        else:
            self.decide(StatesDeleted(GROUP, work.states))

    def put(self, work: StateWork) -> bool:
        for place in self.places(work.states):
            if isinstance(work, InitializeStates):
                if self.states.get(place, 0) > work.state_epoch:
                    return False
                self.states[place] = work.state_epoch
            else:
                self.states.pop(place, None)
        return True

    def places(self, states: StatesOf) -> list[Place]:
        return [(states.topic_id, index) for index in states.partitions]

    @rule(topic=TOPICS, count=st.integers(1, 8))
    def topic_grows(self, topic: str, count: int) -> None:
        if topic in self.cluster.image().topics:
            self.cluster.grow(topic, max(count, self.cluster.size_of(topic)))

    @rule(topic=TOPICS, noticed=st.booleans())
    def topic_goes_or_comes(self, topic: str, noticed: bool) -> None:
        if topic not in self.cluster.image().topics:
            self.cluster.create(topic)
            return
        self.cluster.drop(topic)
        if noticed:
            self.decide(ForgetTopic(topic))

    @rule(topic=TOPICS, index=st.integers(0, 3))
    def seek(self, topic: str, index: int) -> None:
        known = self.cluster.image().topics.get(topic)
        epoch = self.decide(PrepareSeek(GROUP))
        if isinstance(epoch, int) and not isinstance(epoch, ErrorCode) and known is not None:
            self.states[known.id, index] = epoch
            self.decide(StatesPut(GROUP, (TopicPartition(topic, index),)))

    @rule(topic=TOPICS, works=st.booleans())
    def forget(self, topic: str, works: bool) -> None:
        found = self.decide(PrepareForget(GROUP, (topic,)))
        if works and isinstance(found, tuple):
            self.delete_states(found)

    @rule(works=st.booleans())
    def delete_group(self, works: bool) -> None:
        reply = self.decide(DeleteGroup(GROUP))
        if works and isinstance(reply, StatesInTheWay):
            self.delete_states(reply.states)
            assert self.decide(DeleteGroup(GROUP)) is ErrorCode.none
            assert not self.shard.durable.has(GROUP)
            self.work.clear()

    def delete_states(self, found: tuple[StatesOf, ...]) -> None:
        for states in found:
            for place in self.places(states):
                self.states.pop(place, None)
            self.decide(StatesDeleted(GROUP, states))

    @rule(ms=st.sampled_from([500, 2_000, 4_000, 46_000]))
    def time_passes(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        for _ in range(10_000):
            name = min(self.timers, key=lambda name: self.timers[name][0], default=None)
            if name is None or self.timers[name][0] > until_ms:
                break
            self.now_ms, command = self.timers.pop(name)
            self.decide(command)
        self.now_ms = until_ms

    @rule()
    def coordinator_moves(self) -> None:
        self.load()

    # --- what holds -------------------------------------------------------------------------------------------------

    @invariant()
    def reading_the_journal_back_gives_the_same(self) -> None:
        again, _ = self.new_shard()
        assert {name: picture(group) for name, group in again.durable.shares.items()} == {
            name: picture(group) for name, group in self.shard.durable.shares.items()
        }
        assert again.durable.cost_bytes == self.shard.durable.cost_bytes
        assert again.durable.said_bytes(GROUP) == self.shard.durable.said_bytes(GROUP)

    @invariant()
    def only_what_has_state_is_given_out(self) -> None:
        group = self.group
        for member, parts in group.targets.items():
            assert member in group.members
            if group.plan_epoch == group.epoch:
                for topic_id, indexes in parts.items():
                    assert indexes <= group.topics.initialized[topic_id].partitions

    @invariant()
    def members_are_as_many_as_allowed_and_what_they_know_is_not_ahead(self) -> None:
        group = self.group
        assert len(group.members) <= self.settings.share_max_size
        for member in group.members:
            assert group.current(member).epoch <= group.plan_epoch <= group.epoch
            assert ("share session", GROUP, member) in self.timers

    @invariant()
    def whoever_waits_is_woken_by_a_timer_at_the_latest(self) -> None:
        for member in self.waiting.values():
            assert ("share wait", GROUP, member) in self.timers

    def teardown(self) -> None:
        """The share coordinator works, and every member sends its heartbeats."""
        if not hasattr(self, "shard"):
            return
        for _ in range(4):
            while self.work:
                self.share_coordinator_answers(0, True)
            for member in list(self.group.members):
                self.decide(
                    ShareHeartbeat(GROUP, member, self.epochs.get(member, 0), member, "/h", None, ("t", "u")), member
                )
            self.time_passes(4_000)
        group, topics = self.group, self.cluster.image().topics
        wanted = {
            (topics[name].id, partition.index)
            for name in ("t", "u") if name in topics
            for partition in topics[name].partitions
        }  # fmt: skip
        given = {
            member: {
                (topic_id, index) for topic_id, indexes in group.current(member).assigned.items() for index in indexes
            }
            for member in group.members
        }
        if given:
            assert set().union(*given.values()) == wanted
            assert all(given.values()) or not wanted
            assert wanted <= self.states.keys()
        assert not self.waiting
        assert not group.topics.initializing


TestShareGroups = ShareGroupMachine.TestCase
TestShareGroups.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
