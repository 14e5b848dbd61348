"""The sender: whatever brokers answer, and however connections break, batches are stored once and in order."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.client.blocking import Address
from headrace.client.metadata import Cluster
from headrace.model.failure import Failure
from headrace.spark.sink.options import SinkOptions
from headrace.spark.sink.sender import Outgoing, Sender
from headrace.spark.sink.transactions import ProducerIdAndEpoch, Transactions
from headrace.wire import batches, records
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from headrace.wire.record import Record
from tests.unit.client.fake_brokers import FakeNet
from tests.unit.client.test_cluster import JumpingClock

PRODUCE, METADATA = 0, 3
HOMES = {1: Address("a", 1), 2: Address("b", 2)}
REMEMBERED = 5  # batches of a producer that a partition knows


class Brokers:
    """Two brokers with Kafka's rules for sequence numbers, and a mood for each Produce request to come: `none` stores,
    another code refuses, `lost` hangs up before, `late` after, `moves` gives the partitions to the other broker."""

    def __init__(self, moods: list[str]) -> None:
        self.moods = deque(moods)
        self.leader = 1
        self.stored: dict[int, list[int]] = {}  # by partition: the first sequences of its batches
        self.next: dict[int, int] = {}
        self.net = FakeNet()
        for number, address in HOMES.items():
            self.net.answers[address] = lambda api, asked, number=number: self.answer(number, api, asked)  # type: ignore[misc]

    def answer(self, number: int, api_key: int, asked: Message) -> Message | None:
        return self.metadata() if api_key == METADATA else self.produce(number, asked)

    def metadata(self) -> Message:
        brokers = [Message(node_id=key, host=home.host, port=home.port) for key, home in HOMES.items()]
        parts = [Message(partition_index=index, leader_id=self.leader) for index in range(3)]
        return Message(brokers=brokers, topics=[Message(name="t", partitions=parts)])

    def produce(self, number: int, asked: Message) -> Message | None:
        mood = self.moods.popleft() if self.moods else "none"
        if mood == "lost":
            return None
        if mood == "moves":
            self.leader = 3 - self.leader
        parts = []
        for data in asked.topic_data[0].partition_data:
            code = self.store(number, data.index, bytes(data.records), mood)
            parts.append(Message(index=data.index, error_code=code))
        return None if mood == "late" else Message(responses=[Message(name="t", partition_responses=parts)])

    def store(self, number: int, partition: int, batch: bytes, mood: str) -> int:
        if number != self.leader:
            return ErrorCode.not_leader_or_follower
        if mood in ErrorCode.__members__ and mood != "none":
            return ErrorCode[mood]
        header = batches.read_header(batch)
        stored = self.stored.setdefault(partition, [])
        if header.base_sequence in stored[-REMEMBERED:]:
            return ErrorCode.none
        if stored and header.base_sequence != self.next[partition]:
            return ErrorCode.out_of_order_sequence_number
        stored.append(header.base_sequence)
        self.next[partition] = header.base_sequence + header.record_count
        return ErrorCode.none


def sender_to(brokers: Brokers, request_bytes: int = 1) -> Sender:
    clock = JumpingClock()
    options = SinkOptions(("a:1",), "t", request_bytes=request_bytes)
    cluster, lane = (
        Cluster(["a:1", "b:2"], "test", clock=clock, dial=brokers.net.dial, patience_s=30) for _ in range(2)
    )
    return Sender(cluster, lane, Transactions(cluster, clock, 30), options, ProducerIdAndEpoch(7, 0), None, clock)


def outgoing(partition: int, sequence: int) -> Outgoing:
    batch = records.encode_batch(
        [Record(0, 0, None, b"v"), Record(1, 0, None, b"v")], producer_id=7, producer_epoch=0, base_sequence=sequence
    )
    return Outgoing(("t", partition), batch, sequence)


def send_all(sender: Sender, partitions: list[int]) -> dict[int, list[int]]:
    """Two records to each of these partitions in turn; what must be stored then."""
    wanted: dict[int, list[int]] = {}
    for partition in partitions:
        sequences = wanted.setdefault(partition, [])
        sequences.append(2 * len(sequences))
        sender.send(outgoing(partition, sequences[-1]))
    sender.flush()
    return wanted


moods = st.sampled_from(
    ["none", "lost", "late", "moves", "not_leader_or_follower", "not_enough_replicas", "kafka_storage_error"]
)


@given(
    st.lists(moods, max_size=20), st.lists(st.integers(0, 2), min_size=1, max_size=25), st.sampled_from([1, 200, 900])
)
@example(["not_leader_or_follower"] * 3, [0] * 8, 1)  # a new leader, which takes any number first
@example(["moves"], [0] * 10, 200)  # while batches are collected for the old one
def test_batches_are_stored_once_and_in_order_whatever_happens(
    troubles: list[str], partitions: list[int], request_bytes: int
) -> None:
    brokers = Brokers(troubles)
    wanted = send_all(sender_to(brokers, request_bytes), partitions)
    assert brokers.stored == wanted


def test_several_requests_are_on_their_way_at_once() -> None:
    brokers = Brokers([])
    sender = sender_to(brokers)
    for number in range(6):
        sender.send(outgoing(0, 2 * number))
    assert brokers.stored == {0: [0, 2, 4, 6, 8, 10]}
    assert sum(len(waiting) for waiting in sender._on_their_way.values()) == 5


@pytest.mark.parametrize("code", ["message_too_large", "invalid_producer_epoch", "topic_authorization_failed"])
def test_a_refusal_for_good_is_told_at_once(code: str) -> None:
    with pytest.raises(Failure, match=f"topic t, partition 0 rejected a batch of 7. bytes with {code}"):
        send_all(sender_to(Brokers(["none", code])), [0, 0, 0])


def test_a_leader_that_takes_nothing_for_too_long_is_told() -> None:
    with pytest.raises(
        Failure, match=r"partition 0 accepted no records for 120000 ms \(kafka\.delivery\.timeout\.ms\)"
    ):
        send_all(sender_to(Brokers(["not_enough_replicas"] * 100_000)), [0])
