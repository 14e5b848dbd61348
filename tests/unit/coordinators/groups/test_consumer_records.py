"""The records of consumer groups: what is written is read back, and the bytes are Kafka's."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinators.groups.consumer_records import (
    CURRENT,
    EPOCH,
    PATTERN,
    PLAN,
    SUBSCRIPTION,
    TARGET,
    ClassicFacet,
    ConsumerKey,
    GroupEpoch,
    PlanEpoch,
    ResolvedPattern,
    Subscription,
    Value,
    consumer_key,
    consumer_value,
    read_consumer_key,
    read_consumer_value,
)
from headrace.coordinators.groups.durable import DurableGroups
from headrace.coordinators.groups.reconciliation import CurrentAssignment, MemberState
from headrace.coordinators.groups.records import read_key
from headrace.wire.errors import Malformed

int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
words, maybe = st.text(max_size=150), st.none() | st.text(max_size=10)
partitions = st.frozensets(st.integers(0, 2**31 - 1), min_size=1, max_size=5)
parts = st.dictionaries(st.uuids(), partitions, max_size=3)
held = st.dictionaries(st.uuids(), st.dictionaries(st.integers(0, 100), int32, min_size=1, max_size=4), max_size=3)
facets = st.builds(ClassicFacet, int32, st.lists(st.tuples(words, st.binary(max_size=200)), max_size=3).map(tuple))
values = {
    EPOCH: st.builds(GroupEpoch, int32, int64),
    SUBSCRIPTION: st.builds(
        Subscription, words, words, maybe, maybe, st.lists(words, max_size=3).map(tuple), maybe, int32, maybe,
        st.none() | facets,
    ),
    PLAN: st.builds(PlanEpoch, int32, int64),
    TARGET: parts,
    CURRENT: st.builds(CurrentAssignment, int32, int32, st.sampled_from(MemberState), held, held),
    PATTERN: st.builds(ResolvedPattern, st.frozensets(words, max_size=3), int64, int64),
}  # fmt: skip


@given(st.sampled_from(sorted(values)).flatmap(lambda kind: st.tuples(st.just(kind), values[kind])))
def test_value_is_read_back(drawn: tuple[int, Value]) -> None:
    kind, value = drawn
    assert read_consumer_value(kind, consumer_value(value)) == value


@given(words, words)
def test_key_is_read_back(group_id: str, name: str) -> None:
    for kind in values:
        key = ConsumerKey(kind, group_id, None if kind in (EPOCH, PLAN) else name)
        assert read_key(consumer_key(key)) == key


@given(st.sampled_from(sorted(values)), st.binary(max_size=60))
def test_garbled_record_is_malformed_and_nothing_else(kind: int, raw: bytes) -> None:
    for read in (lambda: read_consumer_value(kind, raw), lambda: read_consumer_key(kind.to_bytes(2) + raw)):
        try:
            read()
        except Malformed:
            pass


T = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
DECODED_BY_KAFKA = {  # what Apache Kafka 4.3 reads as the value beside it
    "0000 00000002 01 00 08 9991a346ce15b4ac": (EPOCH, GroupEpoch(2, -7380938789782965076)),
    "0000 00000004 01 00 08 00000000000003e8": (PLAN, PlanEpoch(4, 1000)),
    "0000 02 00112233445566778899aabbccddeeff 03 00000002 00000003 00 00": (TARGET, {T: frozenset({2, 3})}),
    "0000 00000002 00000001 01 02 00112233445566778899aabbccddeeff 02 00000000 01 00 05 02 00000001 01 00": (
        CURRENT,
        CurrentAssignment(2, 1, MemberState.UNREVOKED, {T: {0: 1}}, {}),
    ),
    "0000 00 00 02 63 02 68 02 02 74 00 000493e0 00 01 00 11 01 00001770 02 06 72616e6765 03 0003 00 00": (
        SUBSCRIPTION,
        Subscription("c", "h", None, None, ("t",), None, 300_000, None, ClassicFacet(6000, (("range", b"\0\3"),))),
    ),
    "0000 02 02 74 0000000000000004 00000000000003e8 00": (PATTERN, ResolvedPattern(frozenset({"t"}), 4, 1000)),
}


@pytest.mark.parametrize("raw", DECODED_BY_KAFKA)
def test_bytes_are_kafkas(raw: str) -> None:
    kind, value = DECODED_BY_KAFKA[raw]
    assert consumer_value(value).hex() == raw.replace(" ", "")
    assert read_consumer_value(kind, bytes.fromhex(raw)) == value


def test_fields_of_a_newer_version_are_passed_over_and_missing_ones_have_defaults() -> None:
    assert read_consumer_value(EPOCH, bytes.fromhex("0000 00000002 00")) == GroupEpoch(2, 0)
    assert read_consumer_value(EPOCH, bytes.fromhex("0000 00000002 01 09 01 ff")) == GroupEpoch(2, 0)
    without_epochs = bytes.fromhex("0000 00000005 00000004 00 02" + T.hex + "02 00000007 00 01 00")
    known = CurrentAssignment(5, 4, MemberState.STABLE, {T: {7: 5}}, {})
    assert read_consumer_value(CURRENT, without_epochs) == known


def test_record_that_cannot_be_read_is_skipped() -> None:
    durable = DurableGroups()
    durable.apply(consumer_key(ConsumerKey(EPOCH, "g")), b"\x00\x09")
    durable.apply(consumer_key(ConsumerKey(CURRENT, "g", "m")), bytes.fromhex("0000 00000002 00000001 63 01 01 00"))
    durable.apply(consumer_key(ConsumerKey(EPOCH, "g")), consumer_value(GroupEpoch(3, 0)))
    assert durable.consumers["g"].epoch == 3
