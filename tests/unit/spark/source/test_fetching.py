"""Fetching a range while leaders move, hang up and forget: every record once, or one clear sentence."""

from __future__ import annotations

import pytest

from headrace.client.blocking import Address
from headrace.client.metadata import Cluster
from headrace.model.failure import Failure
from headrace.model.topic_partition import TopicPartition
from headrace.spark.source.fetching import LiveRange, RangeFetch
from headrace.spark.source.options import source_options
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from headrace.wire.record import Record
from headrace.wire.records import encode_batch
from tests.unit.client.fake_brokers import FakeNet
from tests.unit.client.test_cluster import JumpingClock

FETCH, LIST_OFFSETS, METADATA = 1, 2, 3
PLACE = TopicPartition("orders", 0)
ADDRESSES = {1: Address("a", 1), 2: Address("b", 2)}
OPTIONS = source_options({"kafka.bootstrap.servers": "a:1,b:2", "subscribe": "orders"}, "batch")


class Partition:
    """A log of twelve records in batches of three, on two brokers, of which one leads."""

    def __init__(self) -> None:
        self.net = FakeNet()
        self.leader = 1
        self.asked: list[tuple[int, int]] = []  # (broker, offset)
        self.troubles: dict[int, list[str]] = {}  # offset -> what happens when it is asked for, once each
        for number, address in ADDRESSES.items():
            self.net.answers[address] = lambda api, message, number=number: self._answer(number, api, message)

    def _answer(self, number: int, api_key: int, message: Message) -> Message | None:
        if api_key == METADATA:
            return Message(
                brokers=[Message(node_id=node, host=at.host, port=at.port) for node, at in ADDRESSES.items()],
                topics=[Message(name="orders", partitions=[Message(partition_index=0, leader_id=self.leader)])],
            )
        if api_key == LIST_OFFSETS:
            (part,) = message.topics[0].partitions
            found = Message(partition_index=0, offset=0 if part.timestamp == -2 else 12)
            return Message(topics=[Message(name="orders", partitions=[found])])
        offset = message.topics[0].partitions[0].fetch_offset
        self.asked.append((number, offset))
        trouble = self.troubles.get(offset, [])
        if trouble:
            match trouble.pop(0):
                case "moves":
                    self.leader = 3 - self.leader
                case "hangs up":
                    return None
                case "is empty":
                    return _fetched(b"")
                case name:
                    return _fetched(b"", ErrorCode[name])
        if number != self.leader:
            return _fetched(b"", ErrorCode.not_leader_or_follower)
        first = offset - offset % 3
        run = [Record(first + turn, 0, None, b"%d" % (first + turn)) for turn in range(3)]
        return _fetched(bytes(encode_batch(run, base_offset=first)))

    def read(self, start: int, end: int) -> list[int]:
        """The offsets at which the batches of the range begin."""
        clock = JumpingClock()
        cluster = Cluster(["a:1", "b:2"], "test", clock=clock, dial=self.net.dial, patience_s=5)
        wanted = LiveRange(PLACE, start, end, ADDRESSES[1], None)
        fetch = RangeFetch(OPTIONS, wanted, cluster, clock)
        return [header.base_offset for got in fetch.responses() for _, header in got.found]


def _fetched(records: bytes, error: ErrorCode = ErrorCode.none) -> Message:
    part = Message(partition_index=0, error_code=error, high_watermark=12, records=records, aborted_transactions=[])
    return Message(responses=[Message(topic="orders", partitions=[part])])


@pytest.fixture
def log() -> Partition:
    return Partition()


def test_the_next_request_leaves_before_the_last_response_is_taken(log: Partition) -> None:
    assert log.read(0, 12) == [0, 3, 6, 9]
    assert log.asked == [(1, 0), (1, 3), (1, 6), (1, 9)]


def test_a_range_in_the_middle_is_asked_for_and_no_more(log: Partition) -> None:
    assert log.read(4, 7) == [3, 6]
    assert log.asked == [(1, 4), (1, 6)]


@pytest.mark.parametrize(
    "troubles",
    [
        ["moves"],
        ["hangs up"],
        ["is empty"],
        ["moves", "moves"],
        ["hangs up", "moves", "hangs up"],
        ["fenced_leader_epoch", "unknown_topic_or_partition", "kafka_storage_error"],
        ["offset_out_of_range"],
        ["offset_out_of_range", "moves"],
    ],
    ids=str,
)
def test_trouble_in_the_middle_of_a_range_costs_nothing(log: Partition, troubles: list[str]) -> None:
    log.troubles[6] = troubles
    assert log.read(0, 12) == [0, 3, 6, 9]


def test_what_no_waiting_helps_against_is_said_at_once(log: Partition) -> None:
    log.troubles[3] = ["topic_authorization_failed"]
    with pytest.raises(Failure, match="partition 0 of topic orders cannot be read: topic_authorization_failed"):
        log.read(0, 12)


def test_a_leader_that_stays_away_is_given_up_in_the_end(log: Partition) -> None:
    log.troubles[3] = ["not_leader_or_follower"] * 10_000
    with pytest.raises(Failure, match=r"returned no records from offset 3 for 6\d seconds, the end offset was 12"):
        log.read(0, 12)
