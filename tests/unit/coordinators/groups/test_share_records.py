"""The records of share groups: what is written is read back, and the bytes are Kafka's."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinators.groups.consumer_records import ConsumerKey, GroupEpoch, consumer_key
from headrace.coordinators.groups.durable import DurableGroups
from headrace.coordinators.groups.records import read_key
from headrace.coordinators.groups.share_records import (
    SHARE_CURRENT,
    SHARE_EPOCH,
    SHARE_KINDS,
    SHARE_MEMBER,
    SHARE_PLAN,
    SHARE_STATES,
    SHARE_TARGET,
    ShareCurrent,
    SharedTopics,
    ShareMember,
    SharePlanEpoch,
    ShareValue,
    TopicStates,
    read_share_value,
    share_value,
)
from headrace.wire.errors import Malformed

int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
words, maybe = st.text(max_size=150), st.none() | st.text(max_size=10)
partitions = st.frozensets(st.integers(0, 2**31 - 1), min_size=1, max_size=5)
parts = st.dictionaries(st.uuids(), partitions, max_size=3)
topics = st.dictionaries(st.uuids(), st.builds(TopicStates, words, partitions), max_size=3)
values = {
    SHARE_MEMBER: st.builds(ShareMember, words, words, maybe, st.lists(words, max_size=3).map(tuple)),
    SHARE_EPOCH: st.builds(GroupEpoch, int32, int64),
    SHARE_PLAN: st.builds(SharePlanEpoch, int32),
    SHARE_TARGET: parts,
    SHARE_CURRENT: st.builds(ShareCurrent, int32, int32, parts),
    SHARE_STATES: st.builds(SharedTopics, topics, topics, topics),
}
NUMBER = uuid.UUID(int=0x11 << 120)


@given(st.sampled_from(sorted(values)).flatmap(lambda kind: st.tuples(st.just(kind), values[kind])))
def test_value_is_read_back(drawn: tuple[int, ShareValue]) -> None:
    kind, value = drawn
    assert read_share_value(kind, share_value(value)) == value


@pytest.mark.parametrize("kind", SHARE_KINDS)
def test_key_is_read_back(kind: int) -> None:
    name = "m" if kind in (SHARE_MEMBER, SHARE_TARGET, SHARE_CURRENT) else None
    key = ConsumerKey(kind, "g", name)
    assert read_key(consumer_key(key)) == key


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (ShareMember("c", "/h", None, ("t",)), "0000 00 0263 032f68 02 0274 00"),
        (GroupEpoch(5, 9), "0000 00000005 0000000000000009 00"),
        (SharePlanEpoch(5), "0000 00000005 00"),
        ({NUMBER: frozenset({1})}, f"0000 02 {NUMBER.hex} 02 00000001 00 00"),
        (ShareCurrent(5, 4, {NUMBER: frozenset({1})}), f"0000 00000005 00000004 00 02 {NUMBER.hex} 02 00000001 00 00"),
        (
            SharedTopics({}, {NUMBER: TopicStates("t", frozenset({1}))}, {}),
            f"0000 01 02 {NUMBER.hex} 0274 02 00000001 00 01 00",
        ),
        (
            SharedTopics({}, {}, {NUMBER: TopicStates("t", frozenset({1}))}),
            f"0000 01 01 02 {NUMBER.hex} 0274 01 00 05 02 00000001 00",
        ),
    ],
)
def test_bytes_are_as_kafka_writes_them(value: ShareValue, raw: str) -> None:
    assert share_value(value).hex() == raw.replace(" ", "")


def test_a_deleted_group_leaves_nothing() -> None:
    durable = DurableGroups()
    records = [
        (consumer_key(ConsumerKey(SHARE_EPOCH, "g")), share_value(GroupEpoch(1, 2))),
        (consumer_key(ConsumerKey(SHARE_MEMBER, "g", "m")), share_value(ShareMember("c", "/h", None, ("t",)))),
    ]
    for record in records:
        durable.apply(*record)
    assert durable.has("g")
    assert durable.names() == []
    assert durable.said_bytes("g") > 0
    for key, _ in reversed(records):
        durable.apply(key, None)
    assert not durable.has("g")
    assert (durable.cost_bytes, durable.said_bytes("g")) == (0, 0)


@given(st.sampled_from(SHARE_KINDS), st.binary(max_size=40))
def test_any_bytes_are_a_value_or_malformed(kind: int, raw: bytes) -> None:
    try:
        read_share_value(kind, raw)
    except Malformed:
        pass
