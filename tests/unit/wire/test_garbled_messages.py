"""Garbled requests and responses raise Malformed and nothing else, and cost no more memory than their bytes explain."""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.index import api_key_map

from headrace.wire import messages
from headrace.wire.errors import Malformed
from headrace.wire.messages import Message
from tests.unit.wire.message_strategies import MESSAGES
from tests.unit.wire.message_strategies import messages as any_message

METADATA, OFFSET_COMMIT, API_VERSIONS, DESCRIBE_TOPIC_PARTITIONS, FIND_COORDINATOR = 3, 8, 18, 75, 10
KIB = 1024


def survives(api_key: int, version: int, direction: str, data: bytes) -> None:
    door = messages.decode_request if direction == "request" else messages.decode_response
    try:
        door(api_key, version, memoryview(data))
    except Malformed:
        pass


def encoded(api_key: int, version: int, direction: str, message: Message) -> bytearray:
    if direction == "request":
        return bytearray(messages.encode_request(api_key, version, message))
    return bytearray(b"".join(messages.encode_response(api_key, version, message)))


@pytest.mark.parametrize("direction", ["request", "response"])
@pytest.mark.parametrize("api_key", list(api_key_map), ids=lambda api_key: api_key_map[api_key])
def test_a_changed_or_cut_message_is_malformed_at_most(api_key: int, direction: str) -> None:
    versions = [version for key, version, way in MESSAGES if (key, way) == (api_key, direction)]

    @settings(max_examples=2 * len(versions), suppress_health_check=list(HealthCheck), deadline=None)
    @given(st.sampled_from(versions), st.data(), st.integers(0, 2**32))
    def garble(version: int, data: st.DataObject, seed: int) -> None:
        dice = random.Random(seed)
        whole = encoded(api_key, version, direction, data.draw(any_message(api_key, version, direction)))
        for _ in range(10):
            changed = bytearray(whole)
            for _ in range(dice.randint(0, 3) if whole else 0):
                changed[dice.randrange(len(changed))] = dice.choice([0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)])
            survives(api_key, version, direction, bytes(changed[: dice.randint(0, len(changed))]))
            survives(api_key, version, direction, bytes(changed))

    garble()


@pytest.mark.parametrize("filling", [b"\x00", b"\x01", b"\x7f", b"\xff", b"\x80\x01", b"\xfe\xff\xff\xff\x07", b"\x02"])
def test_monotonous_bytes_are_malformed_at_most(filling: bytes) -> None:
    for api_key, version, direction in MESSAGES:
        survives(api_key, version, direction, filling * 40)


@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        (METADATA, 1, struct.pack(">i", 2**31 - 1)),
        (METADATA, 9, b"\xff\xff\xff\xff\x07"),
        (OFFSET_COMMIT, 2, struct.pack(">hiihqi", 0, 0, 0, 0, 0, 2**31 - 1)[:2] + b"\x7f\xff" * 8),
        (OFFSET_COMMIT, 8, b"\xff\xff\xff\xff\x07"),
    ],
)
def test_a_lying_length_is_refused_before_anything_is_made_of_it(api_key: int, version: int, body: bytes) -> None:
    survives(api_key, version, "request", b"")  # compiles the reader, which is not to be counted
    data = memoryview(body + bytes(10 * KIB))
    tracemalloc.start()
    with pytest.raises(Malformed):
        messages.decode_request(api_key, version, data)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 40 * KIB


def test_null_is_refused_where_it_is_not_allowed() -> None:
    assert messages.decode_request(METADATA, 1, memoryview(struct.pack(">i", -1))).topics is None
    with pytest.raises(Malformed, match="topics"):
        messages.decode_request(METADATA, 0, memoryview(struct.pack(">i", -1)))
    with pytest.raises(Malformed, match="name"):
        messages.decode_request(METADATA, 1, memoryview(struct.pack(">ih", 1, -1)))
    with pytest.raises(Malformed, match="null in an array"):  # coordinator_keys = [null]
        messages.decode_request(FIND_COORDINATOR, 4, memoryview(b"\x00\x02\x00\x00"))


def test_a_tagged_field_must_be_as_long_as_its_tag_says() -> None:
    body = b"\x00\x00\x01\x00\x00\x00\x00"  # no error, no API, throttle 0
    epoch = struct.pack(">q", 5)
    read = messages.decode_response(API_VERSIONS, 3, memoryview(body + b"\x01\x01\x08" + epoch))
    assert read.finalized_features_epoch == 5
    for size in (b"\x07", b"\x09"):
        with pytest.raises(Malformed):
            messages.decode_response(API_VERSIONS, 3, memoryview(body + b"\x01\x01" + size + epoch + b"\x00"))


def test_unknown_tagged_fields_are_skipped() -> None:
    body = messages.encode_request(API_VERSIONS, 3, Message(client_software_name="n", client_software_version="v"))
    assert body[-1] == 0
    read = messages.decode_request(API_VERSIONS, 3, memoryview(body[:-1] + b"\x02\x63\x02xy\x64\x00"))
    assert (read.client_software_name, read.client_software_version) == ("n", "v")


def test_text_that_is_not_utf8_is_malformed() -> None:
    with pytest.raises(Malformed):
        messages.decode_request(METADATA, 1, memoryview(struct.pack(">ih", 1, 2) + b"\xff\xfe"))
