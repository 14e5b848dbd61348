"""Whatever happens to groups, reading the journal back gives the same durable state, and stable groups go on.

Hypothesis makes up commands of a few processes; replies and timers are carried out as the runtime would, but by hand,
so that a failing history is a short list.
"""

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.coordinators.groups.commands import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    ExpireOffsets,
    ForgetTopic,
    Heartbeat,
    Join,
    JoinReply,
    Leave,
    OffsetToCommit,
    Sync,
)
from headrace.coordinators.groups.settings import GroupSettings
from headrace.coordinators.groups.shard import GroupShard
from headrace.coordinators.shard import Alarm, Outcome, Record, Wait
from headrace.wire.errors import ErrorCode
from headrace.world.entropy import SeededEntropy
from tests.unit.coordinators.stage import Cluster, subscription, topic_id

DAY_MS = 86_400_000
PROCESSES = st.integers(0, 3)
GROUPS = st.sampled_from(["g", "h"])
TOPICS = st.sampled_from(["t", "u"])


@dataclass
class Process:
    member_id: str = ""
    generation: int = -1
    group_id: str = "g"
    instance: str | None = None


class GroupMachine(RuleBasedStateMachine):
    @initialize(delay_ms=st.sampled_from([0, 3_000]), max_size=st.sampled_from([2, 100]))
    def start(self, delay_ms: int, max_size: int) -> None:
        self.settings = GroupSettings(initial_rebalance_delay_ms=delay_ms, max_size=max_size)
        self.journal: list[Record] = []
        self.now_ms = 0
        self.processes = [Process(instance=None if number else "static") for number in range(4)]
        self.entropy = SeededEntropy(1)
        self.load()

    def new_shard(self) -> tuple[GroupShard, Outcome]:
        shard = GroupShard(self.settings, Cluster({"t": {}, "u": {"retention.ms": "1000"}}), self.entropy)
        for record in self.journal:
            shard.apply(*record)
        return shard, shard.loaded(self.now_ms)

    def load(self) -> None:
        self.timers: dict[Any, tuple[int, Any]] = {}
        self.waiting: dict[int, tuple[str, Process]] = {}  # by ticket: (group, process)
        self.shard, outcome = self.new_shard()
        self.carry_out(outcome, None)

    def decide(self, command: Any, process: Process | None = None) -> None:
        self.carry_out(self.shard.decide(command, self.now_ms), process)

    def carry_out(self, outcome: Outcome, process: Process | None) -> None:
        if isinstance(outcome.reply, Wait):
            assert process is not None
            assert outcome.reply.ticket not in self.waiting
            self.waiting[outcome.reply.ticket] = (process.group_id, process)
        elif isinstance(outcome.reply, JoinReply) and process is not None:
            self.joined(process, outcome.reply)
        for ticket, reply in outcome.instructions:
            _, woken = self.waiting.pop(ticket)  # every ticket is woken once
            if isinstance(reply, JoinReply):
                self.joined(woken, reply)
        for name, alarm in outcome.timers.items():
            self.set_timer(name, alarm)
        for record in outcome.records:
            self.journal.append(record)
            self.shard.apply(*record)

    def set_timer(self, name: Any, alarm: Alarm | None) -> None:
        if alarm is None:
            self.timers.pop(name, None)
        else:
            self.timers[name] = (self.now_ms + alarm.delay_ms, alarm.command)

    def joined(self, process: Process, reply: JoinReply) -> None:
        if reply.error in (ErrorCode.none, ErrorCode.member_id_required):
            process.member_id, process.generation = reply.member_id, reply.generation
        elif reply.error is ErrorCode.unknown_member_id:
            process.member_id = ""

    # --- what can happen --------------------------------------------------------------------------------------------

    @rule(
        who=PROCESSES,
        group=GROUPS,
        names=st.sampled_from([("range",), ("sticky", "range"), ("range", "sticky")]),
        old=st.booleans(),
    )
    def join(self, who: int, group: str, names: tuple[str, ...], old: bool) -> None:
        process = self.processes[who]
        if group != process.group_id:
            process.group_id, process.member_id = group, ""
        protocols = tuple((name, subscription("t")) for name in names)
        command = Join(
            group, process.member_id, process.instance, f"c{who}", "/host", 10_000, 30_000, "consumer", protocols,
            needs_member_id=not old, can_skip_assignment=not old,
        )  # fmt: skip
        self.decide(command, process)

    @rule(who=PROCESSES)
    def restart_static_process(self, who: int) -> None:
        if self.processes[who].instance is not None:
            self.processes[who].member_id = ""

    @rule(who=PROCESSES)
    def sync(self, who: int) -> None:
        process = self.processes[who]
        plan = {other.member_id: b"part of %d" % number for number, other in enumerate(self.processes)}
        command = Sync(process.group_id, process.member_id, process.instance, process.generation, None, None, plan)
        self.decide(command, process)

    @rule(who=PROCESSES)
    def heartbeat(self, who: int) -> None:
        process = self.processes[who]
        self.decide(Heartbeat(process.group_id, process.member_id, process.instance, process.generation))

    @rule(who=PROCESSES)
    def leave(self, who: int) -> None:
        process = self.processes[who]
        self.decide(Leave(process.group_id, ((process.member_id, process.instance),)))
        process.member_id = ""

    @rule(who=PROCESSES, topic=TOPICS, partition=st.integers(0, 1), offset=st.integers(0, 9))
    def commit(self, who: int, topic: str, partition: int, offset: int) -> None:
        process, offsets = self.processes[who], (OffsetToCommit(topic, topic_id(topic), partition, offset, -1, ""),)
        command = CommitOffsets(process.group_id, process.member_id, process.instance, process.generation, offsets)
        self.decide(command)

    @rule(group=GROUPS, topic=TOPICS)
    def commit_without_membership(self, group: str, topic: str) -> None:
        self.decide(CommitOffsets(group, "", None, -1, (OffsetToCommit(topic, topic_id(topic), 0, 1, -1, ""),)))

    @rule(group=GROUPS, topic=TOPICS)
    def delete_offsets(self, group: str, topic: str) -> None:
        self.decide(DeleteOffsets(group, ((topic, 0), (topic, 1))))

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        self.decide(DeleteGroup(group))

    @rule(topic=TOPICS)
    def forget_topic(self, topic: str) -> None:
        self.decide(ForgetTopic(topic))

    @rule(ms=st.sampled_from([1_000, 9_000, 31_000, 301_000, 8 * DAY_MS]))
    def time_passes(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        if ms >= DAY_MS:
            self.timers.pop("expiry", None)  # one look at the end says as much as a thousand on the way
        for _ in range(10_000):
            name = min(self.timers, key=lambda name: self.timers[name][0], default=None)
            if name is None or self.timers[name][0] > until_ms:
                break
            self.now_ms, command = self.timers.pop(name)
            self.decide(command)
        self.now_ms = until_ms
        self.decide(ExpireOffsets())

    @rule()
    def coordinator_moves(self) -> None:
        self.load()

    # --- what holds -------------------------------------------------------------------------------------------------

    @invariant()
    def reading_the_journal_back_gives_the_same(self) -> None:
        again, _ = self.new_shard()
        assert again.durable.groups == self.shard.durable.groups
        assert again.durable.offsets == self.shard.durable.offsets
        for group_id in ("g", "h"):
            lives = self.shard.decide(DescribeGroup(group_id), self.now_ms).reply
            if not isinstance(lives, str) and lives.state == "Stable":
                assert again.decide(DescribeGroup(group_id), self.now_ms).reply == lives

    @invariant()
    def whoever_waits_is_woken_by_a_timer_at_the_latest(self) -> None:
        for group_id, _ in self.waiting.values():
            assert {("join", group_id), ("sync", group_id)} & self.timers.keys()


TestGroupsReload = GroupMachine.TestCase
TestGroupsReload.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
