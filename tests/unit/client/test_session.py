"""A conversation as bytes: the right version, responses in order, and nothing that was not asked for."""

from __future__ import annotations

import struct

import pytest

from headrace.client.session import Session, frame_size
from headrace.wire.errors import ErrorCode, KafkaError, Malformed
from headrace.wire.frames import client_id, parse_request_header, response_prefix
from headrace.wire.messages import Buffer, Message, decode_request, encode_response

PRODUCE, METADATA, API_VERSIONS = 0, 3, 18


def talking(*ranges: tuple[int, int, int]) -> Session:
    session = Session("test")
    session.versions_from(
        Message(
            error_code=0,
            api_keys=[Message(api_key=key, min_version=low, max_version=high) for key, low, high in ranges],
        )
    )
    return session


def reply(request: list[Buffer], body: Message, *, correlation_id: int | None = None) -> memoryview:
    api_key, version, number, _ = parse_request_header(memoryview(b"".join(request))[4:])
    prefix = response_prefix(api_key, version, number if correlation_id is None else correlation_id)
    return memoryview(prefix + b"".join(encode_response(api_key, version, body)))


def test_a_request_is_a_whole_frame_in_the_highest_version_that_both_know() -> None:
    session = talking((METADATA, 4, 99))
    frame = b"".join(session.ask(METADATA, Message(topics=[Message(name="orders")])))
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4 == frame_size(frame[:4])
    api_key, version, _, at = parse_request_header(memoryview(frame)[4:])
    assert (api_key, version, client_id(memoryview(frame)[4:])) == (METADATA, 13, "test")
    assert decode_request(METADATA, 13, memoryview(frame)[4:], at).topics[0].name == "orders"
    older = b"".join(session.ask(METADATA, Message(), 5))
    assert parse_request_header(memoryview(older)[4:])[1] == 5


def test_records_are_sent_from_where_they_are() -> None:
    session = talking((PRODUCE, 0, 9))
    records = bytearray(b"r" * 100_000)
    topic = Message(name="orders", partition_data=[Message(index=0, records=records)])
    frame = session.ask(PRODUCE, Message(transactional_id=None, acks=-1, timeout_ms=1, topic_data=[topic]))
    assert any(buffer is records for buffer in frame)
    whole = b"".join(frame)
    assert frame_size(whole[:4]) == len(whole) - 4
    at = parse_request_header(memoryview(whole)[4:])[3]
    sent = decode_request(PRODUCE, 9, memoryview(whole)[4:], at)
    assert sent.topic_data[0].partition_data[0].records == records


def test_responses_come_in_the_order_of_the_requests() -> None:
    session = talking((METADATA, 0, 9))
    requests = [session.ask(METADATA, Message(topics=[])) for _ in range(3)]
    assert session.open_requests == 3
    got = [session.receive(reply(request, Message(controller_id=place))) for place, request in enumerate(requests)]
    assert [message.controller_id for message in got] == [0, 1, 2]
    assert session.open_requests == 0


def test_a_response_to_another_request_ends_the_conversation() -> None:
    session = talking((METADATA, 0, 9))
    request = session.ask(METADATA, Message(topics=[]))
    with pytest.raises(Malformed, match="request 7, expected 0"):
        session.receive(reply(request, Message(), correlation_id=7))
    with pytest.raises(Malformed, match="without a request in flight"):
        session.receive(reply(request, Message()))


@pytest.mark.parametrize("frame", [b"", b"\0\0", b"\0\0\0\0", b"\0\0\0\0\xff", b"\0\0\0\0\x01\x00\x7f"])
def test_a_response_that_is_cut_short_is_malformed(frame: bytes) -> None:
    session = talking((METADATA, 0, 12))
    session.ask(METADATA, Message(topics=[]))
    with pytest.raises(Malformed):
        session.receive(memoryview(frame))


def test_an_older_broker_refuses_in_version_0_and_is_understood() -> None:
    session = Session("test")
    session.ask_versions()
    refusal = Message(
        error_code=ErrorCode.unsupported_version, api_keys=[Message(api_key=METADATA, min_version=0, max_version=5)]
    )
    frame = struct.pack(">i", 0) + b"".join(encode_response(API_VERSIONS, 0, refusal))
    session.versions_from(session.receive(memoryview(frame)))
    assert session.version_of(METADATA) == 5


def test_what_the_broker_does_not_serve_cannot_be_asked() -> None:
    with pytest.raises(RuntimeError, match="versions are not known yet"):
        Session("test").ask(METADATA, Message())
    with pytest.raises(KafkaError, match="no version of API 3"):
        talking((METADATA, 90, 99)).ask(METADATA, Message())
    with pytest.raises(KafkaError, match="no version of API 3"):
        talking((1, 0, 5)).ask(METADATA, Message())
    with pytest.raises(KafkaError, match="rejected the ApiVersions request"):
        Session("test").versions_from(Message(error_code=ErrorCode.unknown_server_error, api_keys=[]))


@pytest.mark.parametrize("size", [-1, 0, 3, (1 << 30) + 1])
def test_a_frame_of_no_possible_size_is_malformed(size: int) -> None:
    with pytest.raises(Malformed):
        frame_size(struct.pack(">i", size))
