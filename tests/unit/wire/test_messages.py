"""Every message of every version is read and written as kio does it, and defaults are what handlers rely on."""

from __future__ import annotations

import io
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

from headrace.wire import messages
from headrace.wire.messages import Message
from headrace.wire.schemas import entity_of, slots_of
from tests.unit.wire.message_strategies import MESSAGES, kios_own, to_kio
from tests.unit.wire.message_strategies import messages as any_message

PRODUCE, FETCH, METADATA, OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP = 0, 1, 3, 8, 9, 11
API_VERSIONS, CREATE_TOPICS, CONSUMER_GROUP_HEARTBEAT, DESCRIBE_TOPIC_PARTITIONS = 18, 19, 68, 75


def encode(api_key: int, version: int, direction: str, message: Message) -> bytes:
    if direction == "request":
        return messages.encode_request(api_key, version, message)
    return b"".join(messages.encode_response(api_key, version, message))


def decode(api_key: int, version: int, direction: str, data: bytes) -> Message:
    door = messages.decode_request if direction == "request" else messages.decode_response
    return door(api_key, version, memoryview(data))


def plain(value: Any) -> Any:
    """Without views into buffers, to be compared."""
    if isinstance(value, Message):
        return {name: plain(item) for name, item in vars(value).items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return bytes(value) if isinstance(value, memoryview) else value


@pytest.mark.parametrize("direction", ["request", "response"])
@pytest.mark.parametrize("api_key", list(api_key_map), ids=lambda api_key: api_key_map[api_key])
def test_every_message_is_written_and_read_as_kio_does_it(api_key: int, direction: str) -> None:
    versions = [version for key, version, way in MESSAGES if (key, way) == (api_key, direction)]

    @settings(max_examples=3 * len(versions), suppress_health_check=list(HealthCheck), deadline=None)
    @given(st.sampled_from(versions), st.data())
    def compare(version: int, data: st.DataObject) -> None:
        entity = entity_of(api_key, version, direction)
        message = data.draw(any_message(api_key, version, direction))
        theirs = to_kio(entity, message)
        buffer = io.BytesIO()
        entity_writer(kios_own(entity))(buffer, theirs)
        ours = encode(api_key, version, direction, message)
        assert ours == buffer.getvalue()
        assert entity_reader(kios_own(entity))(ours, 0) == (theirs, len(ours))
        assert plain(decode(api_key, version, direction, ours)) == plain(message)

    compare()


@pytest.mark.parametrize(("api_key", "version", "direction"), MESSAGES)
def test_a_message_without_fields_is_written_with_defaults(api_key: int, version: int, direction: str) -> None:
    read = decode(api_key, version, direction, encode(api_key, version, direction, Message()))
    expected = {slot.name: slot.default for slot in slots_of(entity_of(api_key, version, direction))}
    assert plain(read) == plain(Message(**expected))


def test_a_field_of_another_version_has_its_default() -> None:
    request = messages.decode_request(FETCH, 4, memoryview(messages.encode_request(FETCH, 4, Message())))
    assert request.session_epoch == -1
    assert request.rack_id == ""
    assert request.forgotten_topics_data == []
    join = messages.decode_request(JOIN_GROUP, 0, memoryview(messages.encode_request(JOIN_GROUP, 0, Message())))
    assert (join.rebalance_timeout_ms, join.group_instance_id) == (-1, None)
    commit = messages.decode_request(OFFSET_COMMIT, 9, memoryview(messages.encode_request(OFFSET_COMMIT, 9, Message())))
    assert (commit.generation_id_or_member_epoch, commit.group_instance_id, commit.retention_time_ms) == (-1, None, -1)


def test_a_default_list_belongs_to_its_reader_alone() -> None:
    request = messages.decode_request(FETCH, 4, memoryview(messages.encode_request(FETCH, 4, Message())))
    request.forgotten_topics_data.append("something")
    assert request.forgotten_topics_data == []


def test_a_field_that_no_version_has_is_an_error() -> None:
    request = messages.decode_request(FETCH, 4, memoryview(messages.encode_request(FETCH, 4, Message())))
    with pytest.raises(AttributeError, match="max_weight"):
        _ = request.max_weight
    messages.check_fields(FETCH, "response", Message(responses=[Message(partitions=[Message(high_watermark=1)])]))
    with pytest.raises(AttributeError, match="hihg_watermark"):
        messages.check_fields(FETCH, "response", Message(responses=[Message(partitions=[Message(hihg_watermark=1)])]))


def test_offset_fetch_and_heartbeat_defaults_are_those_of_the_schema() -> None:
    partition = Message(partition_index=3)
    body = Message(groups=[Message(group_id="g", topics=[Message(name="t", partitions=[partition])])])
    data = b"".join(messages.encode_response(OFFSET_FETCH, 8, body))
    read = messages.decode_response(OFFSET_FETCH, 8, memoryview(data)).groups[0].topics[0].partitions[0]
    assert (read.committed_offset, read.committed_leader_epoch, read.metadata) == (0, -1, None)
    data = messages.encode_request(CONSUMER_GROUP_HEARTBEAT, 1, Message(group_id="g"))
    beat = messages.decode_request(CONSUMER_GROUP_HEARTBEAT, 1, memoryview(data))
    assert (beat.rebalance_timeout_ms, beat.subscribed_topic_names, beat.topic_partitions) == (-1, None, [])


def test_a_nullable_struct_is_there_or_not() -> None:
    for cursor in (None, Message(topic_name="t", partition_index=4)):
        data = messages.encode_request(DESCRIBE_TOPIC_PARTITIONS, 0, Message(cursor=cursor))
        read = messages.decode_request(DESCRIBE_TOPIC_PARTITIONS, 0, memoryview(data))
        assert plain(read.cursor) == plain(cursor)


def test_large_records_are_sent_without_a_copy() -> None:
    records = bytearray(10_000)
    parts = [memoryview(records)[:5000], memoryview(records)[5000:]]
    for given_records in (records, parts):
        body = Message(responses=[Message(topic="t", partitions=[Message(records=given_records)])])
        chunks = messages.encode_response(FETCH, 12, body)
        assert sum(len(chunk) for chunk in chunks if chunk is records or chunk in parts) == 10_000
        read = messages.decode_response(FETCH, 12, memoryview(b"".join(chunks)))
        assert read.responses[0].partitions[0].records == records


def test_records_of_a_request_are_a_view_of_its_buffer() -> None:
    topic = Message(name="t", partition_data=[Message(index=0, records=b"batch")])
    data = bytearray(messages.encode_request(PRODUCE, 9, Message(topic_data=[topic])))
    view = messages.decode_request(PRODUCE, 9, memoryview(data)).topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview)
    assert view.obj is data


def test_an_all_zero_uuid_is_none() -> None:
    topic_id = UUID(int=7)
    body = Message(topics=[Message(topic_id=None, name="a"), Message(topic_id=topic_id, name="b")])
    read = messages.decode_response(METADATA, 12, memoryview(b"".join(messages.encode_response(METADATA, 12, body))))
    assert [topic.topic_id for topic in read.topics] == [None, topic_id]


def test_header_versions_follow_the_schema() -> None:
    assert messages.header_version(METADATA, 8, "request") == 1
    assert messages.header_version(METADATA, 9, "request") == 2
    assert messages.header_version(API_VERSIONS, 4, "response") == 0
    assert messages.knows(CREATE_TOPICS, 7)
    assert not messages.knows(CREATE_TOPICS, 99)
    assert not messages.knows(-1, 0)
