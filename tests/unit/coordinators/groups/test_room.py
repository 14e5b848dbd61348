"""Groups take a bounded amount of memory, and those that are known go on when it is used up."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.coordinators.groups.commands import (
    CommitInTransaction,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    Heartbeat,
    Join,
    JoinReply,
    JoinTimeUp,
    Leave,
    OffsetToCommit,
    SessionExpired,
    Sync,
    SyncReply,
)
from headrace.coordinators.groups.consumer_commands import LEAVE, ConsumerHeartbeat
from headrace.coordinators.groups.group import PENDING_BYTES
from headrace.coordinators.groups.membership_reply import MembershipReply
from headrace.coordinators.groups.room import SAID_EVERY_MS
from headrace.coordinators.groups.settings import GroupSettings
from headrace.coordinators.groups.shard import GroupShard
from headrace.coordinators.shard import Outcome, Wait
from headrace.model.topic_partition import TopicPartition
from headrace.wire.errors import ErrorCode
from headrace.world.entropy import SeededEntropy
from tests.unit.coordinators.stage import Cluster, subscription, topic_id

KIB = 1 << 10
SETTINGS = GroupSettings(initial_rebalance_delay_ms=0, max_group_bytes=100 * KIB, max_state_bytes=1_000 * KIB)
FULL = ErrorCode.coordinator_not_available
TOO_LARGE = ErrorCode.group_max_size_reached


def joining(group: str, member: str = "", size: int = 100, **more: Any) -> Join:
    metadata = subscription("t") + bytes(size)
    join = Join(group, member, None, "c", "/h", 10_000, 30_000, "consumer", (("range", metadata),), False, True)
    return replace(join, **more)


def beat(group: str, member: str, *topics: str, **more: Any) -> ConsumerHeartbeat:
    heartbeat = ConsumerHeartbeat(group, member, 0, "c", "/h", None, None, 30_000, topics, None, None, {})
    return replace(heartbeat, **more)


def offsets(group: str, partition: int = 0, metadata: str = "") -> CommitOffsets:
    return CommitOffsets(group, "", None, -1, (OffsetToCommit("t", topic_id("t"), partition, 5, -1, metadata),))


class Stage:
    """A shard whose outcomes are applied at once."""

    def __init__(self, settings: GroupSettings = SETTINGS) -> None:
        self.settings = settings
        self.now_ms = 0
        self.journal: list[tuple[bytes, bytes | None, int]] = []
        self.shard = self.new_shard()
        self.shard.loaded(0)

    def new_shard(self) -> GroupShard:
        return GroupShard(self.settings, Cluster({"t": {}}), SeededEntropy(1))

    def decide(self, command: Any) -> Outcome:
        outcome = self.shard.decide(command, self.now_ms)
        for record in outcome.records:
            self.journal.append((*record, -1 if outcome.producer is None else outcome.producer[0]))
            self.shard.apply(*self.journal[-1])
        return outcome

    def reply(self, command: Any) -> Any:
        return self.decide(command).reply

    @property
    def used_bytes(self) -> int:
        return self.shard._room.used_bytes

    def fill(self) -> int:
        """Groups with an offset each, until there is no room for another; how many there are."""
        number = 0
        while self.reply(offsets(f"filler-{number}")) == [ErrorCode.none]:
            number += 1
        return number


# --- one group ------------------------------------------------------------------------------------------------------


def test_metadata_of_the_members_of_one_group_is_limited() -> None:
    stage = Stage()
    for _ in range(3):
        assert isinstance(stage.reply(joining("g", size=30 * KIB)), Wait)
    assert stage.reply(joining("g", size=30 * KIB)) == JoinReply(TOO_LARGE)
    assert isinstance(stage.reply(joining("other", size=30 * KIB)), Wait)


def test_a_member_cannot_come_back_with_more_than_its_group_may_have() -> None:
    stage = Stage()
    stage.reply(joining("g"))
    member = next(iter(stage.shard._groups["g"].members))
    assert isinstance(stage.reply(joining("g", member, 90 * KIB)), Wait)
    assert stage.reply(joining("g", member, 110 * KIB)) == JoinReply(TOO_LARGE)


def test_the_number_of_members_does_not_count_as_what_they_say() -> None:
    stage = Stage()
    for _ in range(300):
        assert isinstance(stage.reply(joining("g", size=100)), Wait)


def test_a_member_has_no_more_than_a_thousand_protocols_and_each_counts() -> None:
    stage = Stage()
    most = tuple((str(number), b"") for number in range(1_001))
    assert stage.reply(joining("g", protocols=most)).error is ErrorCode.inconsistent_group_protocol
    assert stage.reply(joining("g", protocols=most[:1_000])) == JoinReply(TOO_LARGE)
    assert isinstance(stage.reply(joining("g", protocols=most[:100])), Wait)


def test_a_partition_that_a_commit_names_repeatedly_is_written_once() -> None:
    stage = Stage()
    one, two = offsets("g", 0, "first").offsets[0], offsets("g", 0, "last").offsets[0]
    outcome = stage.decide(replace(offsets("g"), offsets=(one, *[two] * 1_000)))
    assert outcome.reply == [ErrorCode.none] * 1_001
    assert len(outcome.records) == 1
    assert stage.shard.durable.offsets_of("g")[TopicPartition("t", 0)].metadata == "last"


def test_an_assignment_larger_than_a_group_may_be_is_refused() -> None:
    stage = Stage()
    stage.reply(joining("g"))
    group = stage.shard._groups["g"]
    assert group.leader is not None
    sync = Sync("g", group.leader, None, group.generation, None, None, {group.leader: bytes(101 * KIB)})
    assert stage.reply(sync) == SyncReply(ErrorCode.unknown_server_error)
    assert isinstance(stage.reply(replace(sync, assignments={group.leader: bytes(10 * KIB)})), Wait)


def test_subscriptions_of_the_members_of_a_consumer_group_are_limited() -> None:
    stage = Stage()
    long = [f"{number:0>200}" for number in range(110)]
    for member in "abcd":
        assert stage.reply(beat("g", member, *long)).error is ErrorCode.none
    refused = stage.reply(beat("g", "e", *long))
    assert refused.error is TOO_LARGE
    assert "headrace.group.max.bytes" in refused.message
    assert set(stage.shard.durable.consumers["g"].members) == set("abcd")
    said = stage.reply(beat("g", "a", *long, *(name + "x" for name in long), epoch=1))
    assert said.error is TOO_LARGE, "nor may a member subscribe to more later"
    assert stage.reply(beat("g", "a", topics=None, owned=None, epoch=1)).error is ErrorCode.none
    assert stage.reply(beat("g", "f", *map(str, range(100_000)))).error is TOO_LARGE
    assert stage.reply(beat("g", "a", epoch=LEAVE)).error is ErrorCode.none
    assert stage.reply(beat("g", "e", *long)).error is ErrorCode.none, "there is room again"


# --- all groups -----------------------------------------------------------------------------------------------------


def test_new_groups_members_and_offsets_are_refused_when_there_is_no_room(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    assert stage.fill() > 400
    assert stage.used_bytes <= SETTINGS.max_state_bytes
    assert stage.reply(joining("new")) == JoinReply(FULL)
    refused = stage.reply(beat("newer", "a", "t"))
    assert isinstance(refused, MembershipReply)
    assert refused.error is FULL
    assert stage.reply(offsets("filler-0", 1)) == [FULL]
    assert stage.reply(offsets("filler-0", 0, "x" * 3_000)) == [FULL]
    txn = CommitInTransaction("new", "", None, -1, 7, 0, offsets("new").offsets)
    assert stage.reply(txn) == [FULL]
    assert stage.used_bytes <= SETTINGS.max_state_bytes
    assert len(caplog.messages) == 1, "said once a minute"
    assert "headrace.group.state.max.bytes" in caplog.text
    stage.now_ms += SAID_EVERY_MS
    stage.reply(joining("new"))
    assert len(caplog.messages) == 2


def test_who_is_known_goes_on_when_there_is_no_room() -> None:
    stage = Stage()
    stage.reply(joining("g"))
    group = stage.shard._groups["g"]
    member, generation = next(iter(group.members)), group.generation
    stage.reply(Sync("g", member, None, generation, None, None, {member: b""}))
    stage.reply(beat("k", "a", "t"))
    stage.fill()
    stage.fill()
    assert stage.reply(Heartbeat("g", member, None, generation)) is ErrorCode.none
    assert isinstance(stage.reply(joining("g", member)), Wait)
    assert stage.reply(beat("k", "a", epoch=1, topics=None, owned=None)).error is ErrorCode.none
    assert stage.reply(beat("k", "a", "t", epoch=1)).error is ErrorCode.none
    assert stage.reply(offsets("filler-0")) == [ErrorCode.none]
    assert stage.reply(DeleteGroup("filler-0")) is ErrorCode.none
    assert isinstance(stage.reply(joining("x", size=10)), JoinReply), "a member costs more than that"
    for number in range(1, 20):
        stage.reply(DeleteGroup(f"filler-{number}"))
    assert isinstance(stage.reply(joining("x")), Wait), "there is room again"


def test_member_ids_that_nobody_joins_with_are_limited_and_free_their_room_when_they_expire() -> None:
    stage = Stage()
    given = []
    while (reply := stage.reply(joining("g", needs_member_id=True))).error is ErrorCode.member_id_required:
        given.append(reply.member_id)
    assert reply == JoinReply(FULL)
    assert len(given) <= SETTINGS.max_state_bytes // PENDING_BYTES
    for member_id in given:
        stage.decide(SessionExpired("g", member_id))
    assert (stage.used_bytes, stage.shard._groups) == (0, {})


@pytest.mark.parametrize("seed", range(5))
def test_what_is_counted_is_what_is_there(seed: int) -> None:
    """Whatever happens: a shard that reads the journal counts the same durable state, and nothing is left of groups
    that are gone."""
    stage, chance = Stage(), random.Random(seed)
    for _ in range(400):
        group = chance.choice("abc")
        classic = stage.shard._groups.get(group)
        members = list(classic.members) if classic is not None else []
        member = chance.choice([*members, ""])
        number, size = chance.randrange(3), chance.randrange(2_000)
        commands: list[Any] = [
            joining(group, member, size),
            joining(group, needs_member_id=True),
            joining(group, size=size, instance_id=f"static-{number}"),
            JoinTimeUp(group),
            Leave(group, ((member, None),)),
            Sync(group, member, None, classic.generation if classic is not None else 0, None, None, {member: b"x"}),
            beat(group, f"m{number}", "t", "u" * size),
            beat(group, f"m{number}", epoch=LEAVE),
            offsets(group, number, "x" * size),
            DeleteOffsets(group, (TopicPartition("t", number),)),
            replace(offsets(group, number), generation=3),
            CommitInTransaction(group, "", None, -1, number, 0, offsets(group, number, "y" * size).offsets),
            DeleteGroup(group),
        ]
        stage.decide(chance.choice(commands))
        if chance.random() < 0.1:
            stage.shard.apply_end(number, True)
            stage.journal.append((b"", None, number))
    again = stage.new_shard()
    for key, value, producer in stage.journal:
        if key:
            again.apply(key, value, producer)
        else:
            again.apply_end(producer, True)
    assert again.durable.cost_bytes == stage.shard.durable.cost_bytes
    for number in range(3):
        stage.shard.apply_end(number, False)
    for group in "abc":
        for _ in range(2):  # a consumer group may become a classic one when members leave
            both = (stage.shard._groups.get(group), stage.shard.durable.consumers.get(group))
            for member in [member for found in both if found is not None for member in list(found.members)]:
                stage.decide(Leave(group, ((member, None),)))
                stage.decide(JoinTimeUp(group))
        stage.decide(JoinTimeUp(group))
        stage.decide(DeleteGroup(group))
    assert (stage.used_bytes, stage.shard.durable._said, stage.shard._room._live) == (0, {}, {})
