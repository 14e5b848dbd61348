"""Limits on connections and requests, on a real broker with real sockets."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

from headrace.testing.local_broker import HOST, LocalBroker
from headrace.wire.messages import Message
from headrace.wire.records import Record, encode_batch
from tests.raw_client import RawClient

PRODUCE, FETCH, API_VERSIONS, CREATE_TOPICS = 0, 1, 18, 19
MIB = 1 << 20


def works(port: int) -> bool:
    with RawClient(port) as client:
        return client.call(API_VERSIONS, 0, Message()).error_code == 0


def test_a_connection_over_the_limit_is_closed_and_another_may_come_when_one_has_left(tmp_path: Path) -> None:
    with (
        LocalBroker(tmp_path, {"max.connections": "2"}) as broker,
        RawClient(broker.port) as one,
        RawClient(broker.port) as two,
    ):
        assert one.call(API_VERSIONS, 0, Message()).error_code == 0
        assert two.call(API_VERSIONS, 0, Message()).error_code == 0
        with RawClient(broker.port) as three:
            assert three.closed_by_peer()
        assert one.call(API_VERSIONS, 0, Message()).error_code == 0
        two.socket.close()
        assert any(_comes_in(broker.port) for _ in range(10_000)), "as soon as the broker has heard of it"


def _comes_in(port: int) -> bool:
    try:
        return works(port)
    except OSError:
        return False


@pytest.mark.parametrize("size", [3 * MIB, 20 * MIB])
def test_a_request_that_is_larger_than_every_buffer_is_stored_as_it_was_sent(broker: LocalBroker, size: int) -> None:
    value = bytes(range(251)) * (size // 251)
    batch = bytes(encode_batch([Record(0, 1_700_000_000_000, b"key", value, ())]))
    with RawClient(broker.port) as client:
        topic = Message(
            name="large",
            num_partitions=1,
            replication_factor=1,
            configs=[Message(name="max.message.bytes", value=str(100 * MIB))],
        )
        assert client.call(CREATE_TOPICS, 7, Message(topics=[topic], timeout_ms=5000)).topics[0].error_code == 0
        body = Message(
            acks=1,
            timeout_ms=5000,
            topic_data=[Message(name="large", partition_data=[Message(index=0, records=batch)])],
        )
        assert client.call(PRODUCE, 9, body).responses[0].partition_responses[0].error_code == 0
        partition = Message(partition=0, fetch_offset=0, partition_max_bytes=1)
        fetch = Message(max_wait_ms=100, min_bytes=1, topics=[Message(topic="large", partitions=[partition])])
        stored = client.call(FETCH, 11, fetch).responses[0].partitions[0].records
    assert bytes(stored)[61:] == batch[61:]


def test_replies_that_nobody_reads_keep_nobody_waiting(broker: LocalBroker) -> None:
    """It reads them later, all of them and in their order."""
    request = struct.pack(">hhih", API_VERSIONS, 0, 0, -1)
    count = 20_000
    with socket.create_connection((HOST, broker.port)) as silent:
        silent.settimeout(5)
        sent = bytearray()
        for number in range(count):
            sent += struct.pack(">i", len(request)) + request[:4] + struct.pack(">i", number) + request[8:]
        silent.setblocking(False)
        at = 0
        while at < len(sent):
            try:
                at += silent.send(sent[at:])
            except BlockingIOError:
                break
        assert works(broker.port)
        silent.settimeout(30)
        whole = at // (len(request) + 4)
        with silent.makefile("rb") as replies:
            for number in range(whole):
                (size,) = struct.unpack(">i", replies.read(4))
                assert struct.unpack_from(">i", replies.read(size))[0] == number
