"""Whatever a client sends, the broker answers with Kafka's code or closes that one connection, and goes on."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from headrace.testing.local_broker import LocalBroker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from headrace.wire.records import Record, encode_batch
from tests.raw_client import RawClient

PRODUCE, FETCH, METADATA, API_VERSIONS, CREATE_TOPICS, INIT_PRODUCER_ID = 0, 1, 3, 18, 19, 22


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[RawClient]:
    with RawClient(broker.port) as opened:
        yield opened


def still_serving(broker: LocalBroker) -> bool:
    with RawClient(broker.port) as fresh:
        return fresh.call(API_VERSIONS, 0, Message()).error_code == 0


def batch(value: bytes = b"value") -> bytearray:
    return encode_batch([Record(0, 1_700_000_000_000, b"key", value, ())])


def produce(client: RawClient, records: bytes, topic: str = "orders", acks: int = 1) -> Message:
    body = Message(
        acks=acks,
        timeout_ms=5000,
        topic_data=[Message(name=topic, partition_data=[Message(index=0, records=records)])],
    )
    return client.call(PRODUCE, 9, body).responses[0].partition_responses[0]  # type: ignore[no-any-return]


def create(client: RawClient, name: str, **settings: str) -> int:
    topic = Message(
        name=name,
        num_partitions=1,
        replication_factor=1,
        configs=[Message(name=key.replace("_", "."), value=value) for key, value in settings.items()],
    )
    return int(client.call(CREATE_TOPICS, 7, Message(topics=[topic], timeout_ms=5000)).topics[0].error_code)


def test_an_unknown_version_of_api_versions_is_answered_in_the_oldest_layout(
    broker: LocalBroker, client: RawClient
) -> None:
    client.send_frame(struct.pack(">hhih", API_VERSIONS, 99, 7, 3) + b"raw" + b"\x00\xff\xff")
    frame = client.receive_frame()
    correlation_id, error, count = struct.unpack_from(">ihi", frame)
    assert (correlation_id, error) == (7, ErrorCode.unsupported_version)
    assert count > 20
    assert len(frame) == 10 + count * 6


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">hhih", 4242, 0, 1, -1),  # an API that nobody has
        struct.pack(">hhih", METADATA, 99, 1, -1),  # a version that nobody has
        struct.pack(">hhih", PRODUCE, 1, 1, -1),  # advertised for old clients, refused all the same
        struct.pack(">hhih", METADATA, 1, 1, 30000) + b"x",  # a client id that ends beyond the frame
        struct.pack(">hhih", METADATA, 1, 1, -1) + struct.pack(">i", 2**30),  # an array that cannot be there
        struct.pack(">hhih", METADATA, 1, 1, -1) + struct.pack(">ih", 1, 500) + b"short",  # a string cut short
        struct.pack(">hhih", METADATA, 9, 1, -1) + b"\xff\xff\xff\xff\xff\xff\xff",  # a varint without end
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_a_frame_that_makes_no_sense_closes_its_own_connection_only(
    broker: LocalBroker, client: RawClient, frame: bytes
) -> None:
    client.send_frame(frame)
    assert client.closed_by_peer()
    assert still_serving(broker)


@pytest.mark.parametrize("size", [-5, 0, 3, 2**31 - 1])
def test_a_length_that_lies_closes_its_own_connection_only(broker: LocalBroker, client: RawClient, size: int) -> None:
    client.socket.sendall(struct.pack(">i", size) + b"abcdefgh")
    assert client.closed_by_peer()
    assert still_serving(broker)


def test_a_batch_that_does_not_match_its_crc_is_refused_and_not_stored(broker: LocalBroker, client: RawClient) -> None:
    create(client, "orders")
    bad = batch()
    bad[-1] ^= 1
    assert produce(client, bad).error_code == ErrorCode.corrupt_message
    assert produce(client, batch()).base_offset == 0


@pytest.mark.parametrize("cut", [1, 20, 60, 62])
def test_a_batch_cut_short_is_refused(broker: LocalBroker, client: RawClient, cut: int) -> None:
    create(client, "orders")
    assert produce(client, bytes(batch()[:cut])).error_code == ErrorCode.corrupt_message


def test_a_record_count_that_lies_is_refused(broker: LocalBroker, client: RawClient) -> None:
    create(client, "orders")
    bad = batch()
    struct.pack_into(">i", bad, 57, 5)
    assert produce(client, bad).error_code in (ErrorCode.invalid_record, ErrorCode.corrupt_message)


def test_old_message_formats_are_refused_by_name(broker: LocalBroker, client: RawClient) -> None:
    create(client, "orders")
    old = bytearray(batch())
    old[16] = 1
    assert produce(client, old).error_code == ErrorCode.unsupported_for_message_format


def test_an_oversize_batch_is_refused_and_the_next_is_taken(broker: LocalBroker, client: RawClient) -> None:
    create(client, "orders", max_message_bytes="1000")
    assert produce(client, batch(b"x" * 2000)).error_code == ErrorCode.message_too_large
    assert produce(client, batch()).error_code == 0


def test_unknown_topics_and_acks_get_their_codes(broker: LocalBroker, client: RawClient) -> None:
    assert produce(client, batch(), topic="nowhere").error_code == ErrorCode.unknown_topic_or_partition
    assert produce(client, batch(), topic="no/where").error_code == ErrorCode.unknown_topic_or_partition
    create(client, "orders")
    assert produce(client, batch(), acks=7).error_code == ErrorCode.invalid_required_acks


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "x" * 250])
def test_bad_topic_names_are_refused(broker: LocalBroker, client: RawClient, name: str) -> None:
    assert create(client, name) == ErrorCode.invalid_topic_exception


def test_an_empty_transactional_id_is_no_question_for_a_coordinator(broker: LocalBroker, client: RawClient) -> None:
    body = Message(transactional_id="", transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1)
    assert client.call(INIT_PRODUCER_ID, 5, body).error_code == ErrorCode.invalid_request


def test_acks_0_with_an_error_closes_the_connection(broker: LocalBroker, client: RawClient) -> None:
    body = Message(
        acks=0, timeout_ms=1, topic_data=[Message(name="nowhere", partition_data=[Message(index=0, records=batch())])]
    )
    client.send(PRODUCE, 9, body)
    assert client.closed_by_peer()


def test_replies_keep_the_order_of_requests_while_a_fetch_waits(broker: LocalBroker, client: RawClient) -> None:
    create(client, "orders")
    fetch = Message(
        max_wait_ms=300,
        min_bytes=1,
        topics=[Message(topic="orders", partitions=[Message(partition=0, fetch_offset=0, partition_max_bytes=1000)])],
    )
    waiting = client.send(FETCH, 11, fetch)
    asked = client.send(API_VERSIONS, 0, Message())
    first, response = client.receive(FETCH, 11)
    second, _ = client.receive(API_VERSIONS, 0)
    assert (first, second) == (waiting, asked)
    assert response.error_code == 0


def test_a_produce_behind_a_waiting_fetch_takes_effect_and_wakes_it(broker: LocalBroker, client: RawClient) -> None:
    """The append happens in stage one, so the fetch in front of it on the same connection sees its records."""
    create(client, "orders")
    fetch = Message(
        max_wait_ms=20_000,
        min_bytes=1,
        topics=[Message(topic="orders", partitions=[Message(partition=0, fetch_offset=0, partition_max_bytes=1000)])],
    )
    client.send(FETCH, 11, fetch)
    body = Message(
        acks=1, timeout_ms=1000, topic_data=[Message(name="orders", partition_data=[Message(index=0, records=batch())])]
    )
    client.send(PRODUCE, 9, body)
    _, fetched = client.receive(FETCH, 11)
    assert len(fetched.responses[0].partitions[0].records) == len(batch())
    _, produced = client.receive(PRODUCE, 9)
    assert produced.responses[0].partition_responses[0].base_offset == 0


def test_acks_all_needs_as_many_replicas_in_sync_as_the_topic_asks_for(broker: LocalBroker, client: RawClient) -> None:
    create(client, "orders", min_insync_replicas="2")
    assert produce(client, batch(), acks=-1).error_code == ErrorCode.not_enough_replicas
    assert produce(client, batch(), acks=1).base_offset == 0
