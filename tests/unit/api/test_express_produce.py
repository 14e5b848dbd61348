"""The express lane of Produce answers byte for byte what the full path answers, and appends the same."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.api import express_produce
from headrace.api.contract import Caller, Peer
from headrace.api.express_produce import ExpressProduce
from headrace.log.appended import Appended
from headrace.wire import frames
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message, encode_request, encode_response, header_version
from tests.conftest import SOAKING
from tests.unit.api.express_twins import TWINS, working_with

TOPIC_ID = uuid.UUID(int=99)
PRODUCE = 0
CALLER = Caller(Peer("", 0, "", 0))


@pytest.fixture(params=TWINS, ids=lambda twin: twin.__name__, scope="module", autouse=True)
def _each_twin(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from working_with(request.param, express_produce, "read_produce", "write_produce")


class Partition:
    """Takes anything, and remembers it."""

    def __init__(self, *, fsync: bool = False, commits_at_once: bool = True, topic: str = "orders") -> None:
        self.topic = topic
        self.appended: list[bytes] = []
        self.commits_at_once = commits_at_once
        self.log = SimpleNamespace(config=SimpleNamespace(fsync=fsync))

    def append(self, records: memoryview) -> Appended:
        if bytes(records).startswith(b"bad"):
            raise KafkaError(ErrorCode.corrupt_message)
        self.appended.append(bytes(records))
        return Appended(2**40, 2**40 + 4, 1_700_000_000_000, 77, False, len(records))


class Host:
    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def find(self, topic: str, index: int) -> Partition:
        if topic == "nowhere":
            raise KafkaError(ErrorCode.unknown_topic_or_partition)
        return self._partition

    def find_by_wire_id(self, topic_id: bytes, index: int) -> Partition:
        if topic_id != TOPIC_ID.bytes:
            raise KafkaError(ErrorCode.unknown_topic_id)
        return self._partition


def frame_of(version: int, body: Message) -> tuple[memoryview, int]:
    tags = b"\x00" if header_version(PRODUCE, version, "request") >= 2 else b""
    head = struct.pack(">hhih", PRODUCE, version, 5, 3) + b"raw" + tags
    return memoryview(bytearray(head + encode_request(PRODUCE, version, body))), len(head)


def request(records: bytes | None, **changed: Any) -> Message:
    topic = Message(name="orders", topic_id=TOPIC_ID, partition_data=[Message(index=3, records=records)])
    return Message(**{"acks": 1, "timeout_ms": 1000, "topic_data": [topic], **changed})


def full_reply(version: int, name: str) -> bytes:
    answer = Message(index=3, error_code=0, base_offset=2**40, log_append_time=1_700_000_000_000, log_start_offset=77)
    response = Message(responses=[Message(name=name, topic_id=TOPIC_ID, partition_responses=[answer])])
    body = frames.response_prefix(PRODUCE, version, 5) + b"".join(encode_response(PRODUCE, version, response))
    return struct.pack(">i", len(body)) + body


@given(
    st.integers(3, 13),
    st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=249),
    st.binary(min_size=1, max_size=400).filter(lambda records: not records.startswith(b"bad")),
    st.sampled_from([1, -1]),
)
@settings(max_examples=2000 if SOAKING else 100)
def test_the_usual_request_is_answered_as_by_the_full_path(version: int, name: str, records: bytes, acks: int) -> None:
    partition = Partition()
    body = request(records, acks=acks)
    body.topic_data[0].name = name
    frame, at = frame_of(version, body)
    reply = ExpressProduce(Host(partition))(frame, version, at, 5, CALLER)  # type: ignore[arg-type]
    if reply is None:
        assert version >= 9
        assert len(name) >= 127, "only a very long name needs the full path"
        return
    assert partition.appended == [records]
    assert reply == [full_reply(version, name)]


def unusual() -> Iterator[tuple[str, Message]]:
    topic = request(b"x").topic_data[0]
    yield "a transaction", request(b"x", transactional_id="t")
    yield "no reply wanted", request(b"x", acks=0)
    yield "acks that do not exist", request(b"x", acks=5)
    yield "two topics", request(b"x", topic_data=[topic, topic])
    yield "no topic", request(b"x", topic_data=[])
    yield (
        "two partitions",
        request(b"x", topic_data=[Message(name="a", topic_id=TOPIC_ID, partition_data=topic.partition_data * 2)]),
    )
    yield "no records", request(None)
    yield "a batch that the log refuses", request(b"bad")
    yield (
        "an unknown topic",
        request(
            b"x", topic_data=[Message(name="nowhere", topic_id=uuid.UUID(int=1), partition_data=topic.partition_data)]
        ),
    )


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize(("what", "body"), list(unusual()))
def test_whatever_is_unusual_takes_the_full_path_untouched(version: int, what: str, body: Message) -> None:
    partition = Partition()
    frame, at = frame_of(version, body)
    assert ExpressProduce(Host(partition))(frame, version, at, 5, CALLER) is None, what  # type: ignore[arg-type]
    assert partition.appended == []


@pytest.mark.parametrize("version", [3, 8, 9, 13])
@pytest.mark.parametrize(
    ("acks", "state"), [(1, {"fsync": True}), (-1, {"commits_at_once": False}), (1, {"topic": "__consumer_offsets"})]
)
def test_what_must_wait_or_is_internal_takes_the_full_path(version: int, acks: int, state: dict[str, Any]) -> None:
    partition = Partition(**state)
    frame, at = frame_of(version, request(b"x", acks=acks))
    assert ExpressProduce(Host(partition))(frame, version, at, 5, CALLER) is None  # type: ignore[arg-type]
    assert partition.appended == []


@given(st.integers(3, 13), st.data())
def test_a_garbled_request_is_never_answered_by_the_express_lane_with_an_error(
    version: int, data: st.DataObject
) -> None:
    frame, at = frame_of(version, request(b"some records"))
    cut = data.draw(st.integers(at, len(frame) - 1))
    assert ExpressProduce(Host(Partition()))(frame[:cut], version, at, 5, CALLER) is None  # type: ignore[arg-type]
