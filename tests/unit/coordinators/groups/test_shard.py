"""The groups shard without a runtime: commands in, outcomes out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.coordinators.groups.commands import (
    CommitInTransaction,
    CommitOffsets,
    ExpireOffsets,
    FetchOffsets,
    ForgetTopic,
    Join,
    OffsetToCommit,
    Sync,
)
from headrace.coordinators.groups.consumer_commands import ConsumerHeartbeat
from headrace.coordinators.groups.group import Group, Member
from headrace.coordinators.groups.settings import GroupSettings
from headrace.coordinators.groups.shard import LOOKS_OF_A_GROUP, MAX_LOOKS, MAX_RECORDS, GroupShard
from headrace.coordinators.groups.subscription import subscribed_topics
from headrace.coordinators.groups.topic_patterns import AT_ONCE_S
from headrace.coordinators.shard import Outcome
from headrace.model.settings_in_force import BrokerFile
from headrace.wire.errors import ErrorCode
from headrace.world.entropy import SeededEntropy
from tests.unit.coordinators.stage import BROKER_ID, Cluster, subscription, topic_id

DAY_MS = 86_400_000
SETTINGS = GroupSettings(initial_rebalance_delay_ms=0)
JOIN = Join("g", "", "static", "c", "/h", 10_000, 30_000, "consumer", (("range", subscription("t")),), True, True)


class Stage:
    """A shard whose outcomes are applied at once, on a clock that is a number."""

    def __init__(self, topics: dict[str, dict[str, str]] | None = None, settings: GroupSettings = SETTINGS) -> None:
        self.cluster = Cluster({"t": {}, "u": {}} if topics is None else topics)
        self.shard = GroupShard(settings, self.cluster, SeededEntropy(1))
        self.shard.loaded(0)
        self.now_ms = 0

    def decide(self, command: Any) -> Outcome:
        outcome = self.shard.decide(command, self.now_ms)
        for record in outcome.records:
            self.shard.apply(*record)
        return outcome

    def commit(self, *places: tuple[str, int], member: str = "", generation: int = -1) -> list[ErrorCode]:
        offsets = tuple(OffsetToCommit(topic, topic_id(topic), index, 5, -1, "") for topic, index in places)
        instance = "static" if member else None
        return self.decide(CommitOffsets("g", member, instance, generation, offsets)).reply  # type: ignore[no-any-return]

    def kept(self) -> list[tuple[str, int]]:
        return sorted(self.decide(FetchOffsets("g", None)).reply)

    def kept_after(self, days: int) -> list[tuple[str, int]]:
        self.now_ms += days * DAY_MS
        self.decide(ExpireOffsets())
        return self.kept()


@pytest.mark.parametrize(
    ("retentions", "settings", "last_day"),
    [
        pytest.param({"t": {"retention.ms": str(DAY_MS)}}, SETTINGS, 7, id="the-offsets-own"),
        pytest.param({"t": {"retention.ms": str(30 * DAY_MS)}}, SETTINGS, 30, id="the-topics"),
        pytest.param(
            {"t": {"retention.ms": str(DAY_MS)}, "u": {"retention.ms": str(20 * DAY_MS)}}, SETTINGS, 20, id="longest"
        ),
        pytest.param(
            {"t": {}},
            replace(SETTINGS, file=BrokerFile(1, {"log.retention.ms": str(40 * DAY_MS)})),
            40,
            id="the-brokers-for-topics",
        ),
    ],
)
def test_offsets_go_after_the_longest_retention_and_not_before(
    retentions: dict[str, dict[str, str]], settings: GroupSettings, last_day: int
) -> None:
    stage = Stage(retentions, settings)
    places = [(topic, 0) for topic in retentions]
    stage.commit(*places)
    assert stage.kept_after(last_day - 1) == places
    assert stage.kept_after(1) == []


@pytest.mark.parametrize(
    ("own", "last_day"), [({"log.retention.ms": str(30 * DAY_MS)}, 30), ({"log.cleanup.policy": "compact"}, None)]
)
def test_offsets_stay_as_long_as_the_broker_keeps_records_that_has_them(
    own: dict[str, str], last_day: int | None
) -> None:
    """Its own settings win over those for all brokers; the coordinator's do not count."""
    coordinator = BrokerFile(BROKER_ID + 1, {"log.retention.ms": str(DAY_MS)})
    stage = Stage({"t": {}}, replace(SETTINGS, file=coordinator))
    stage.cluster.broker_settings = {"": {"log.retention.ms": str(2 * DAY_MS)}, str(BROKER_ID): own}
    stage.commit(("t", 0))
    assert stage.kept_after((last_day or 1000) - 1) == [("t", 0)]
    assert stage.kept_after(1) == ([] if last_day else [("t", 0)])


@pytest.mark.parametrize("settings", [{"retention.ms": "-1"}, {"cleanup.policy": "compact"}])
def test_offsets_stay_where_records_do(settings: dict[str, str]) -> None:
    stage = Stage({"t": settings})
    stage.commit(("t", 0))
    assert stage.kept_after(1_000) == [("t", 0)]


def test_member_keeps_the_offsets_of_what_it_subscribes_to_and_no_others() -> None:
    stage = Stage()
    joined = stage.decide(JOIN).instructions[0][1]
    stage.decide(Sync("g", joined.member_id, "static", 1, None, None, {joined.member_id: b"part"}))
    assert stage.commit(("t", 0), ("u", 0), member=joined.member_id, generation=1) == [ErrorCode.none] * 2
    assert stage.kept_after(13) == [("t", 0), ("u", 0)]
    assert stage.kept_after(1) == [("t", 0)]


def beat(epoch: int, **more: Any) -> ConsumerHeartbeat:
    heartbeat = ConsumerHeartbeat("g", "m", epoch, "c", "/h", None, None, 60_000, ("t",), None, None, {})
    return replace(heartbeat, **more)


def test_a_pattern_that_takes_long_goes_on_with_the_next_heartbeat() -> None:
    stage, now_s = Stage({f"t{number}": {} for number in range(50)}), 0.0

    def monotonic() -> float:
        nonlocal now_s
        now_s += AT_ONCE_S / 10
        return now_s

    stage.shard = GroupShard(SETTINGS, stage.cluster, SeededEntropy(1), monotonic)
    joined = stage.decide(beat(0, topics=None, pattern="t.*", owned={})).reply
    assert (joined.error, joined.assignment) == (ErrorCode.none, {})
    for _ in range(20):
        again = stage.decide(beat(joined.epoch, topics=None, owned=None)).reply
        if again.assignment:
            break
    assert len(again.assignment) == 50, "and until then the pattern stands for nothing"
    assert again.epoch == joined.epoch + 1, "all topics come at once"


def test_consumer_group_keeps_the_offsets_of_its_topics_and_for_a_while_after_its_end() -> None:
    stage = Stage()
    stage.decide(beat(0))
    offsets = tuple(OffsetToCommit(topic, topic_id(topic), 0, 5, -1, "") for topic in "tu")
    assert stage.decide(CommitOffsets("g", "m", None, 1, offsets)).reply == [ErrorCode.none] * 2
    assert stage.kept_after(13) == [("t", 0), ("u", 0)]
    assert stage.kept_after(1) == [("t", 0)]
    stage.decide(beat(-1))
    assert stage.kept_after(13) == [("t", 0)]
    assert [listing.group_id for listing in stage.shard.listings()] == ["g"]
    assert stage.kept_after(1) == []
    assert list(stage.shard.listings()) == []
    assert stage.shard.durable.consumers == {}


def test_commit_of_an_older_epoch_counts_for_what_the_member_has_had_since() -> None:
    stage = Stage()
    has = stage.decide(beat(0)).reply.assignment
    stage.decide(beat(1, topics=("t", "u"), owned=has))
    offsets = tuple(OffsetToCommit(topic, topic_id(topic), 0, 5, -1, "") for topic in "tu")
    answers = stage.decide(CommitOffsets("g", "m", None, 1, offsets)).reply
    assert answers == [ErrorCode.none, ErrorCode.stale_member_epoch]


def test_producer_with_a_wrong_epoch_of_a_member_hears_of_a_generation() -> None:
    stage = Stage()
    stage.decide(beat(0))
    offsets = (OffsetToCommit("t", topic_id("t"), 0, 5, -1, ""),)
    for member_id, epoch, error in (
        ("m", 9, ErrorCode.illegal_generation),
        ("x", 1, ErrorCode.unknown_member_id),
        ("m", 1, ErrorCode.none),
        ("", -1, ErrorCode.none),
    ):
        command = CommitInTransaction("g", member_id, None, epoch, 7, 0, offsets)
        assert stage.decide(command).reply == [error]


def test_full_consumer_group_takes_nobody_new() -> None:
    stage = Stage(settings=replace(SETTINGS, consumer_max_size=1))
    stage.decide(beat(0))
    assert stage.decide(beat(0, member_id="n")).reply.error is ErrorCode.group_max_size_reached
    assert stage.decide(replace(JOIN, member_id="n", instance_id=None)).reply.error is ErrorCode.group_max_size_reached
    assert stage.decide(beat(1)).reply.error is ErrorCode.none


def test_commit_into_a_long_empty_group_starts_its_own_time() -> None:
    stage = Stage()
    stage.commit(("t", 0))
    stage.now_ms += 13 * DAY_MS
    stage.commit(("t", 1))
    assert stage.kept_after(2) == [("t", 1)]


def test_large_clean_up_is_done_in_pieces() -> None:
    stage, count = Stage(), MAX_RECORDS + 500
    stage.commit(*(("t", index) for index in range(count)))
    stage.cluster.drop("t")
    first = stage.decide(ForgetTopic("t"))
    assert len(first.records) == MAX_RECORDS
    again = first.timers["forget", "t"]
    assert again is not None
    assert again.delay_ms == 0
    rest = stage.decide(again.command)
    assert len(rest.records) == 500
    assert rest.timers == {}
    assert stage.kept() == []


def test_looking_for_what_expired_is_done_in_pieces() -> None:
    """Each looks at a bounded number of offsets, and together they look at every group once."""
    stage, count = Stage(), 3 * MAX_LOOKS // LOOKS_OF_A_GROUP
    for number in range(count):
        offset = OffsetToCommit("t", topic_id("t"), 0, 5, -1, "")
        stage.decide(CommitOffsets(f"g{number}", "", None, -1, (offset,)))
    stage.now_ms += 365 * DAY_MS
    command, pieces, removed = ExpireOffsets(), 0, 0
    while True:
        outcome = stage.decide(command)
        pieces, removed = pieces + 1, removed + len(outcome.records)
        assert len(outcome.records) <= 2 * MAX_LOOKS // LOOKS_OF_A_GROUP
        again = outcome.timers["expiry"]
        assert again is not None
        command = again.command
        if again.delay_ms:
            break
    assert command == ExpireOffsets()
    assert pieces > 2
    assert removed == 2 * count, "an offset and a group each"
    assert (stage.shard._groups, stage.shard.durable.offsets) == ({}, {})


def test_topic_made_anew_keeps_its_offsets_when_the_news_of_the_deletion_is_late() -> None:
    stage = Stage()
    stage.commit(("t", 0))
    stage.cluster.drop("t")
    stage.cluster.create("t")
    new = OffsetToCommit("t", stage.cluster.id_of("t"), 1, 7, -1, "")
    stage.decide(CommitOffsets("g", "", None, -1, (new,)))
    stage.decide(ForgetTopic("t"))
    assert stage.kept() == [("t", 1)]


LONG = "x" * 0x8000


@pytest.mark.parametrize(
    ("change", "error"),
    [
        pytest.param({"group_id": LONG}, ErrorCode.invalid_group_id, id="group"),
        pytest.param({"instance_id": LONG}, ErrorCode.invalid_request, id="instance"),
        pytest.param({"protocol_type": LONG}, ErrorCode.inconsistent_group_protocol, id="type"),
        pytest.param({"protocols": ((LONG, b""),)}, ErrorCode.inconsistent_group_protocol, id="protocol"),
    ],
)
def test_name_that_no_record_can_hold_is_refused(change: dict[str, Any], error: ErrorCode) -> None:
    stage = Stage()
    assert stage.decide(replace(JOIN, **change)).reply.error is error
    assert list(stage.shard.listings()) == []


def test_commit_under_a_name_that_no_record_can_hold_is_refused() -> None:
    offset = OffsetToCommit("t", topic_id("t"), 0, 1, -1, "")
    assert Stage().decide(CommitOffsets(LONG, "", None, -1, (offset,))).reply == [ErrorCode.invalid_group_id]


def test_who_only_asked_for_a_member_id_leaves_no_trace() -> None:
    stage = Stage()
    asked = stage.decide(replace(JOIN, instance_id=None))
    assert asked.reply.error is ErrorCode.member_id_required
    (alarm,) = asked.timers.values()
    assert alarm is not None
    assert len(list(stage.shard.listings())) == 1
    stage.decide(alarm.command)
    assert list(stage.shard.listings()) == []


# --- small sums ------------------------------------------------------------------------------------------------------

protocol_lists = st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True).map(lambda names: ["e", *names])


@given(st.lists(st.permutations("abc").map(list) | protocol_lists, min_size=1, max_size=6))
def test_elected_protocol_is_known_to_all_and_has_the_most_votes(preferences: list[list[str]]) -> None:
    everybody_knows = set.intersection(*map(set, preferences))
    if not everybody_knows:
        return
    group = Group("g")
    for number, names in enumerate(preferences):
        group.add(Member(str(number), None, "", "", 0, 0, tuple((name, b"") for name in names)))
    votes = [next(name for name in names if name in everybody_knows) for names in preferences]
    elected = group.elect_protocol()
    assert elected in everybody_knows
    assert all(votes.count(elected) >= votes.count(other) for other in everybody_knows)


@given(st.lists(st.text(max_size=10), max_size=5), st.binary(max_size=10))
def test_subscribed_topics_are_read_from_every_version_of_the_metadata(names: list[str], more: bytes) -> None:
    assert subscribed_topics(subscription(*names) + more) == frozenset(names)


@given(st.binary(max_size=60))
def test_metadata_of_another_kind_is_recognized_as_such(garbage: bytes) -> None:
    topics = subscribed_topics(garbage)
    assert topics is None or all(isinstance(name, str) for name in topics)
