"""The items of a message are counted before anything is made of them, in every array of every API and version."""

from __future__ import annotations

import struct
import threading
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.index import api_key_map

from headrace.wire import messages
from headrace.wire.errors import TooManyItems
from headrace.wire.messages import Message
from headrace.wire.schemas import entity_of, is_flexible, least_item_bytes, slots_of
from tests.unit.wire.message_strategies import MESSAGES
from tests.unit.wire.message_strategies import messages as any_message

METADATA, FETCH = 3, 1
KIB = 1024


def items_of(entity: type, message: Message, *, tags: bool) -> int:
    """All that its arrays have together; with the tagged fields that are there, if `tags`."""
    count = 0
    for slot in slots_of(entity):
        value = getattr(message, slot.name)
        if tags and slot.tag is not None and value != slot.default:
            count += 1
        if slot.array and value is not None and (slot.tag is None or value != slot.default):
            count += len(value)
            if slot.entity is not None:
                count += sum(items_of(slot.entity, item, tags=tags) for item in value)
        elif slot.entity is not None and value is not None and (slot.tag is None or value != slot.default):
            count += items_of(slot.entity, value, tags=tags)
    return count


@pytest.mark.parametrize("api_key", list(api_key_map), ids=lambda api_key: api_key_map[api_key])
def test_a_request_is_read_if_it_has_no_more_items_than_allowed(api_key: int) -> None:
    versions = [version for key, version, way in MESSAGES if (key, way) == (api_key, "request")]

    @settings(max_examples=4 * len(versions), suppress_health_check=list(HealthCheck), deadline=None)
    @given(st.sampled_from(versions), st.data())
    def compare(version: int, data: st.DataObject) -> None:
        message = data.draw(any_message(api_key, version, "request"))
        count = items_of(entity_of(api_key, version, "request"), message, tags=True)
        frame = memoryview(messages.encode_request(api_key, version, message))
        whole = messages.decode_request(api_key, version, frame)
        assert messages.decode_request(api_key, version, frame, 0, count) == whole
        if count:
            with pytest.raises(TooManyItems):
                messages.decode_request(api_key, version, frame, 0, count - 1)

    compare()


@pytest.mark.parametrize("api_key", list(api_key_map), ids=lambda api_key: api_key_map[api_key])
def test_a_response_is_written_if_it_has_no_more_items_than_allowed(api_key: int) -> None:
    versions = [version for key, version, way in MESSAGES if (key, way) == (api_key, "response")]

    @settings(max_examples=4 * len(versions), suppress_health_check=list(HealthCheck), deadline=None)
    @given(st.sampled_from(versions), st.data())
    def compare(version: int, data: st.DataObject) -> None:
        message = data.draw(any_message(api_key, version, "response"))
        count = items_of(entity_of(api_key, version, "response"), message, tags=False)
        whole = messages.encode_response(api_key, version, message)
        assert messages.encode_response(api_key, version, message, count) == whole
        if count:
            with pytest.raises(TooManyItems):
                messages.encode_response(api_key, version, message, count - 1)

    compare()


def test_every_item_of_a_request_has_a_byte() -> None:
    """So a request of so many bytes has no more items than that, and need not be counted."""

    def visit(entity: type) -> None:
        for slot in slots_of(entity):
            assert not slot.array or least_item_bytes(slot, is_flexible(entity)) >= 1
            if slot.entity is not None:
                visit(slot.entity)

    for api_key, version, direction in MESSAGES:
        visit(entity_of(api_key, version, direction))


def test_nothing_is_made_of_the_items_beyond() -> None:
    data = memoryview(struct.pack(">i", 300 * KIB) + bytes(600 * KIB))
    with pytest.raises(TooManyItems, match=r"metadata v1: a request with more than 1,000 items"):
        messages.decode_request(METADATA, 1, data, 0, 1_000)  # compiles the reader, which is not to be counted
    tracemalloc.start()
    with pytest.raises(TooManyItems):
        messages.decode_request(METADATA, 1, data, 0, 1_000)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 10 * KIB


def test_tagged_fields_that_nobody_knows_are_items_too() -> None:
    """They are skipped, but one after the other."""
    head = b"\x00" + bytes(3)  # all topics, three flags
    tags = b"\x80\x80\x04" + b"\x63\x00" * (64 * KIB)
    messages.decode_request(METADATA, 9, memoryview(head + tags))
    with pytest.raises(TooManyItems):
        messages.decode_request(METADATA, 9, memoryview(head + tags), 0, 5_000)


def test_threads_count_their_own_messages() -> None:
    topics = [Message(topic="t", partitions=[Message(partition=index) for index in range(2_000)])]
    frame = memoryview(messages.encode_request(FETCH, 11, Message(topics=topics)))
    refused: list[TooManyItems] = []

    def read() -> None:
        for _ in range(20):
            try:
                messages.decode_request(FETCH, 11, frame, 0, 2_001)
            except TooManyItems as error:
                refused.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == []
