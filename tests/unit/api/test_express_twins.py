"""The compiled and the pure-Python codec of the express lanes give the same answers, to good bytes and to bad ones."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.api import _express_py as python
from headrace.api.express_codec import COMPILED
from headrace.wire.messages import Message
from tests.conftest import SOAKING
from tests.unit.api import test_express_fetch as fetching
from tests.unit.api import test_express_produce as producing
from tests.unit.api.express_twins import TWINS

if COMPILED:
    from headrace.api import _express as compiled

PRODUCE_VERSIONS, FETCH_VERSIONS = st.integers(3, 13), st.integers(4, 18)
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
TOPICS = st.text(st.characters(codec="utf-8"), max_size=300) | st.binary(min_size=16, max_size=16)
EDGES = [0, 1, 2, 3, 6, 0x7F, 0x80, 0xFA, 0xFE, 0xFF]  # counts and lengths that lie: none, null, too many, backwards

both_built = pytest.mark.skipif(not COMPILED, reason="there was no C compiler to build the compiled twin with")
each_twin = pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__)


def both(act: Callable[[ModuleType], Any]) -> Any:
    """What both twins answer; an exception fails the test."""
    ours, theirs = act(compiled), act(python)
    assert ours == theirs
    return ours


def produce_asked(frame: bytes, version: int, at: int) -> Any:
    asked = both(lambda twin: twin.read_produce(memoryview(bytearray(frame)), version, at))
    assert asked is None or type(asked[3]) is memoryview
    return asked


def fetch_asked(frame: bytes, version: int, at: int) -> Any:
    return both(lambda twin: twin.read_fetch(memoryview(frame), version, at))


@st.composite
def garbled(draw: st.DrawFn, frame: bytes, at: int) -> bytes:
    """The frame with a few other bytes in its body, bytes that are gone or too many, or an end that is elsewhere."""
    found = bytearray(frame)
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(at, len(found) - 1))
        found[place] = draw(st.sampled_from(EDGES) | st.integers(0, 255))
    start = draw(st.integers(at, len(found)))
    stop = draw(st.just(start) | st.integers(start, len(found)))
    found[start:stop] = draw(st.just(b"") | st.binary(max_size=8))
    return bytes(found[: draw(st.just(len(found)) | st.integers(at, len(found)))])


@both_built
@given(PRODUCE_VERSIONS, st.text(max_size=130), st.binary(max_size=300), st.data())
@settings(max_examples=3000 if SOAKING else 150)
def test_they_read_the_same_produce(version: int, name: str, records: bytes, data: st.DataObject) -> None:
    body = producing.request(producing.topic(name, records, index=3))
    frame, at = producing.frame_of(version, body)
    asked = produce_asked(bytes(frame), version, at)
    if asked is not None:
        assert asked == (1, body.topic_data[0].topic_id.bytes if version >= 13 else name, 3, records)
    else:
        assert version >= 9
        assert len(name.encode()) >= 127
    produce_asked(data.draw(garbled(bytes(frame), at)), version, at)


@both_built
@pytest.mark.parametrize("version", [7, 9, 13])
def test_a_request_with_bytes_after_its_end_is_left_to_the_full_path(version: int) -> None:
    frame, at = producing.frame_of(version, producing.request(producing.topic("orders", b"records", index=3)))
    assert produce_asked(bytes(frame), version, at) is not None
    assert produce_asked(bytes(frame) + b"\0", version, at) is None


@both_built
@given(FETCH_VERSIONS, fetching.requests, st.lists(st.sampled_from(list(fetching.IDS)), max_size=3), st.data())
@settings(max_examples=3000 if SOAKING else 150)
def test_they_read_the_same_fetch(version: int, body: Any, more: list[str], data: st.DataObject) -> None:
    body.topics += [fetching.topic(name) for name in more]
    frame, at = fetching.frame_of(version, body)
    asked = fetch_asked(bytes(frame), version, at)
    if asked is not None:
        assert [len(partitions) for _, partitions in asked[4]] == [len(topic.partitions) for topic in body.topics]
    else:
        assert version == 12
        assert "o" * 200 in more
    fetch_asked(data.draw(garbled(bytes(frame), at)), version, at)


@both_built
@given(st.integers(0, 20), st.lists(st.sampled_from(EDGES) | st.integers(0, 255), max_size=120), st.integers(0, 130))
@example(9, [0, 0, 1, 0, 0, 0, 0, 2, 2, 97, 2, 0, 0, 0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 0, 0, 0], 0)
@example(9, [0, 0, 1, 0, 0, 0, 0, 2, 2, 97, 2, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F, 0, 0, 0], 0)
@example(9, [0, 0, 1, 0, 0, 0, 0, 2, 2, 97, 2, 0, 0, 0, 0, 0x81, 0x80, 0, 0, 0, 0], 0)
@example(9, [0, 0, 1, 0, 0, 0, 0, 2, 2, 0xFF, 2, 0, 0, 0, 0, 2, 97, 0, 0, 0], 0)
def test_they_agree_on_any_bytes(version: int, body: list[int], at: int) -> None:
    produce_asked(bytes(body), version, at)
    fetch_asked(bytes(body), version, at)


@both_built
@given(PRODUCE_VERSIONS, st.tuples(INT32, TOPICS, INT32, INT64, INT64, INT64))
def test_they_write_the_same_reply_to_a_produce(version: int, told: Any) -> None:
    both(lambda twin: twin.write_produce(version, *told))


@both_built
@given(
    FETCH_VERSIONS,
    INT32,
    st.booleans(),
    st.lists(
        st.tuples(
            TOPICS, st.lists(st.tuples(INT32, INT64, INT64, INT64, st.binary() | st.just(bytes(20_000))), max_size=4)
        ),
        max_size=4,
    ),
)
def test_they_write_the_same_reply_to_a_fetch(version: int, correlation_id: int, stable: bool, topics: Any) -> None:
    chunks = both(lambda twin: twin.write_fetch(version, correlation_id, stable, topics))
    whole = b"".join(chunks)
    assert struct.unpack_from(">ii", whole) == (len(whole) - 4, correlation_id)
    found = [records for _, partitions in topics for *_, records in partitions if records]
    assert chunks[1::2][: len(found)] == found


@each_twin
@pytest.mark.parametrize("version", range(4, 12))
def test_a_name_of_less_than_nothing_does_not_lead_back_to_the_same_bytes(twin: ModuleType, version: int) -> None:
    """The second topic's name ends before it begins: in the name of the first, whose end reads like an array with one
    partition, and that like the rest of the request."""
    topic = Message(topic="orders\0\0\0\1", partitions=[])
    whole, at = fetching.frame_of(version, fetching.request(topic, topic))
    frame = bytes(whole)
    tail = 0 if version < 7 else 4 if version < 11 else 6
    second = len(frame) - tail - (2 + 10 + 4)
    epoch = b"\0\0" + bytes(8) if version >= 9 else bytes(6)  # the rest of it and the offset, or of the offset alone
    log_start = b"\xff" * 8 if version >= 5 else b""
    back = frame[:second] + struct.pack(">h", -10) + epoch + log_start + bytes(4) + frame[len(frame) - tail :]
    assert twin.read_fetch(memoryview(back), version, at) is None


@each_twin
@pytest.mark.parametrize("version", range(4, 12))
def test_more_topics_than_a_lane_takes_are_not_looked_at(twin: ModuleType, version: int) -> None:
    frame, at = fetching.frame_of(version, fetching.request(fetching.topic("orders")))
    head = 17 if version < 7 else 25
    many = bytearray(frame)
    many[at + head : at + head + 4] = struct.pack(">i", 2**31 - 1)
    assert twin.read_fetch(memoryview(many), version, at) is None
