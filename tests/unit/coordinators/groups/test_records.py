"""The records of `__consumer_offsets`: byte for byte what Kafka writes, and garbage that is skipped."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinators.groups.commands import CommittedOffset
from headrace.coordinators.groups.durable import DurableGroups
from headrace.coordinators.groups.records import (
    GroupKey,
    OffsetKey,
    StoredGroup,
    StoredMember,
    group_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
    read_group,
    read_key,
    read_offset,
)

TOPIC_ID = uuid.UUID(int=0x0F)
COMMITTED = CommittedOffset(offset=42, leader_epoch=3, metadata="note", commit_ms=1_700_000_000_000, topic_id=TOPIC_ID)
GROUP = StoredGroup(
    protocol_type="consumer",
    generation=5,
    protocol="range",
    leader="a-1",
    state_ms=1_700_000_000_000,
    members=(
        StoredMember("a-1", None, "a", "/127.0.0.1", 60_000, 10_000, b"sub", b"part"),
        StoredMember("i-2", "i", "b", "/::1", 60_000, 10_000, b"", b""),
    ),
)

texts = st.text(max_size=20)
numbers = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
offsets = st.builds(
    CommittedOffset,
    offset=longs,
    leader_epoch=numbers,
    metadata=st.text(max_size=200),
    commit_ms=longs,
    topic_id=st.uuids(),
)
members = st.builds(
    StoredMember,
    member_id=texts,
    instance_id=st.none() | texts,
    client_id=texts,
    client_host=texts,
    rebalance_timeout_ms=numbers,
    session_timeout_ms=numbers,
    subscription=st.binary(max_size=20),
    assignment=st.binary(max_size=20),
)
groups = st.builds(
    StoredGroup,
    protocol_type=texts,
    generation=numbers,
    protocol=st.none() | texts,
    leader=st.none() | texts,
    state_ms=longs,
    members=st.lists(members, max_size=4).map(tuple),
)


def test_offset_has_the_bytes_that_kafka_writes() -> None:
    key, value = offset_record("g", "topic", 9, COMMITTED)
    assert key.hex(" ") == "00 01 00 01 67 00 05 74 6f 70 69 63 00 00 00 09"
    assert value is not None
    assert value.hex(" ") == (
        "00 04 00 00 00 00 00 00 00 2a 00 00 00 03 05 6e 6f 74 65 00 00 01 8b cf e5 68 00"
        " 01 00 10 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 0f"
    )


def test_group_has_the_bytes_that_kafka_writes() -> None:
    key, value = group_record("g", StoredGroup("consumer", 5, None, None, 1_700_000_000_000, ()))
    assert key.hex(" ") == "00 02 00 01 67"
    assert value is not None
    assert value.hex(" ") == (
        "00 03 00 08 63 6f 6e 73 75 6d 65 72 00 00 00 05 ff ff ff ff 00 00 01 8b cf e5 68 00 00 00 00 00"
    )


@given(texts, texts, numbers, offsets)
def test_offset_is_read_as_it_was_written(group: str, topic: str, partition: int, committed: CommittedOffset) -> None:
    key, value = offset_record(group, topic, partition, committed)
    assert value is not None
    assert read_key(key) == OffsetKey(group, topic, partition)
    assert read_offset(value) == committed


@given(texts, groups)
def test_group_is_read_as_it_was_written(group_id: str, group: StoredGroup) -> None:
    key, value = group_record(group_id, group)
    assert value is not None
    assert read_key(key) == GroupKey(group_id)
    assert read_group(value) == group


def test_tombstones_remove_what_they_name() -> None:
    durable = DurableGroups()
    for record in (
        offset_record("g", "t", 0, COMMITTED),
        offset_record("g", "t", 1, COMMITTED),
        group_record("g", GROUP),
    ):
        durable.apply(*record)
    durable.apply(*offset_tombstone("g", "t", 0))
    durable.apply(*offset_tombstone("other", "t", 0))
    assert durable.offsets == {"g": {("t", 1): COMMITTED}}
    assert durable.groups == {"g": GROUP}
    durable.apply(*offset_tombstone("g", "t", 1))
    durable.apply(*group_tombstone("g"))
    assert not durable.has("g")
    assert durable.names() == []


OFFSET = offset_record("g", "t", 0, COMMITTED)
GROUP_RECORD = group_record("g", GROUP)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param(b"", b"", id="empty"),
        pytest.param(b"\x00\x63" + OFFSET[0], OFFSET[1], id="key-of-the-future"),
        pytest.param(OFFSET[0], b"\x00\x09" + (OFFSET[1] or b""), id="value-of-the-future"),
        pytest.param(OFFSET[0][:-1], OFFSET[1], id="short-key"),
        pytest.param(OFFSET[0], (OFFSET[1] or b"")[:-1], id="short-value"),
        pytest.param(GROUP_RECORD[0], (GROUP_RECORD[1] or b"")[:-1], id="short-group"),
        pytest.param(b"\x00\x02\x00\x01\xff", GROUP_RECORD[1], id="not-utf-8"),
    ],
)
def test_record_that_cannot_be_read_costs_nothing_else(key: bytes, value: bytes | None) -> None:
    durable = DurableGroups()
    durable.apply(*offset_record("g", "kept", 0, COMMITTED))
    durable.apply(key, value)
    durable.apply(*offset_record("g", "kept", 1, COMMITTED))
    assert durable.offsets == {"g": {("kept", 0): COMMITTED, ("kept", 1): COMMITTED}}
    assert durable.groups == {}
