"""Request headers are read whatever the client sends, and response headers are those that clients expect."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire import frames
from headrace.wire.errors import Malformed

API_VERSIONS, METADATA = 18, 3


def frame(api_key: int, version: int, client_id: bytes | None = b"me", tail: bytes = b"") -> memoryview:
    size = -1 if client_id is None else len(client_id)
    return memoryview(struct.pack(">hhih", api_key, version, 77, size) + (client_id or b"") + tail)


def test_an_old_header_ends_with_the_client_id() -> None:
    assert frames.parse_request_header(frame(METADATA, 8, tail=b"body")) == (METADATA, 8, 77, 12)
    assert frames.client_id(frame(METADATA, 8, tail=b"body")) == "me"


def test_a_new_header_ends_with_tags_which_are_skipped() -> None:
    assert frames.parse_request_header(frame(METADATA, 9, tail=b"\x00body"))[3] == 13
    assert frames.parse_request_header(frame(METADATA, 9, tail=b"\x02\x00\x01x\x05\x02yzbody"))[3] == 20


def test_a_client_may_have_no_name() -> None:
    nameless = frame(METADATA, 8, None)
    assert frames.parse_request_header(nameless)[3] == len(nameless)
    assert frames.client_id(nameless) == ""


def test_a_client_whose_name_is_not_utf8_is_served_all_the_same() -> None:
    assert frames.parse_request_header(frame(METADATA, 8, b"caf\xe9"))[3] == 14
    assert frames.client_id(frame(METADATA, 8, b"caf\xe9")) == "caf\ufffd"


@pytest.mark.parametrize(("api_key", "version"), [(API_VERSIONS, 5), (API_VERSIONS, 32767), (METADATA, -1), (9999, 0)])
def test_an_unknown_request_still_says_who_waits_for_which_answer(api_key: int, version: int) -> None:
    assert frames.parse_request_header(frame(api_key, version, tail=b"\xff\xff\xff"))[:3] == (api_key, version, 77)


@pytest.mark.parametrize("version", range(5))
def test_api_versions_is_answered_with_the_oldest_header(version: int) -> None:
    assert frames.response_prefix(API_VERSIONS, version, 77) == b"\x00\x00\x00\x4d"


def test_other_responses_have_tags_when_their_version_is_flexible() -> None:
    assert frames.response_prefix(METADATA, 8, 77) == b"\x00\x00\x00\x4d"
    assert frames.response_prefix(METADATA, 9, 77) == b"\x00\x00\x00\x4d\x00"


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\x00\x03\x00",
        bytes(frame(METADATA, 8))[:9],
        bytes(frame(METADATA, 8))[:-1],
        bytes(frame(METADATA, 9)),
        bytes(frame(METADATA, 9, tail=b"\x01\x00\x05abc")),
        bytes(frame(METADATA, 9, tail=b"\xff\xff\xff\xff\x0f")),
        bytes(frame(METADATA, 9, tail=b"\xff\xff\xff\xff\xff\x01")),
    ],
)
def test_a_garbled_header_is_malformed(bad: bytes) -> None:
    with pytest.raises(Malformed):
        frames.parse_request_header(memoryview(bad))


@given(st.binary(max_size=40))
def test_any_bytes_raise_malformed_at_most(data: bytes) -> None:
    try:
        at = frames.parse_request_header(memoryview(data))[3]
    except Malformed:
        return
    assert at <= len(data)
