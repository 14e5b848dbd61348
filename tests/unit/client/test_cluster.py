"""The blocking client: brokers that go, leaders that move, coordinators that load, and a clear error at the end."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator

import pytest

from headrace.client.blocking import Address, BlockingConnection, ConnectionLost
from headrace.client.metadata import Cluster, ClusterUnreachable, error_codes, parse_address
from headrace.model.failure import Failure
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from headrace.world.clock import SystemClock
from tests.unit.client.fake_brokers import FakeNet

LIST_OFFSETS, METADATA, FIND_COORDINATOR, END_TXN = 2, 3, 10, 26
A, B = Address("a", 1), Address("b", 2)


class JumpingClock(SystemClock):
    """Pauses take no time, they only pass."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def pause(self, delay_s: float) -> None:
        self.now_s += delay_s


def metadata(leader: int, partitions: int = 1, error: int = 0) -> Message:
    return Message(
        brokers=[Message(node_id=1, host="a", port=1), Message(node_id=2, host="b", port=2)],
        topics=[
            Message(
                error_code=error,
                name="orders",
                partitions=[Message(partition_index=index, leader_id=leader) for index in range(partitions)],
            )
        ],
    )


def offsets(offset: int, error: int = 0) -> Message:
    part = Message(partition_index=0, error_code=error, offset=offset)
    return Message(topics=[Message(name="orders", partitions=[part])])


@pytest.fixture
def net() -> FakeNet:
    return FakeNet()


def cluster_of(net: FakeNet, *bootstrap: str, patience_s: float = 5) -> Cluster:
    return Cluster(bootstrap, "test", clock=JumpingClock(), dial=net.dial, patience_s=patience_s)


def by_api(**answers: Callable[[Message], Message | None]) -> Callable[[int, Message], Message | None]:
    names = {LIST_OFFSETS: "offsets", METADATA: "metadata", FIND_COORDINATOR: "find", END_TXN: "end"}
    return lambda api_key, message: answers[names[api_key]](message)


def test_any_live_bootstrap_broker_will_do(net: FakeNet) -> None:
    net.answers[B] = by_api(metadata=lambda _: metadata(leader=2))
    cluster = cluster_of(net, "a:1", "b:2")
    assert list(cluster.topics(["orders"])) == ["orders"]
    assert list(net.dialled) == [A, B]
    assert cluster.leader("orders", 0) == B


def test_a_leader_that_moves_is_followed(net: FakeNet) -> None:
    leaders = iter([1, 2])
    net.answers[A] = by_api(
        metadata=lambda _: metadata(next(leaders)), offsets=lambda _: offsets(-1, ErrorCode.not_leader_or_follower)
    )
    net.answers[B] = by_api(offsets=lambda _: offsets(17))
    answer = cluster_of(net, "a:1").call_leader("orders", 0, LIST_OFFSETS, Message(topics=[]))
    assert answer.topics[0].partitions[0].offset == 17


def test_a_leader_that_hangs_up_is_asked_again(net: FakeNet) -> None:
    answers: Iterator[Message | None] = iter([None, None, offsets(4)])
    net.answers[A] = by_api(metadata=lambda _: metadata(1), offsets=lambda _: next(answers))
    answer = cluster_of(net, "a:1").call_leader("orders", 0, LIST_OFFSETS, Message(topics=[]))
    assert answer.topics[0].partitions[0].offset == 4


def test_after_its_patience_the_caller_gets_the_refusal(net: FakeNet) -> None:
    refusal = offsets(-1, ErrorCode.not_leader_or_follower)
    net.answers[A] = by_api(metadata=lambda _: metadata(1), offsets=lambda _: refusal)
    answer = cluster_of(net, "a:1").call_leader("orders", 0, LIST_OFFSETS, Message(topics=[]))
    assert list(error_codes(answer)) == [ErrorCode.not_leader_or_follower]


def test_an_answer_that_is_no_move_is_handed_over_at_once(net: FakeNet) -> None:
    asked = []
    refusal = offsets(-1, ErrorCode.topic_authorization_failed)
    net.answers[A] = by_api(metadata=lambda _: metadata(1), offsets=lambda m: asked.append(m) or refusal)
    cluster_of(net, "a:1").call_leader("orders", 0, LIST_OFFSETS, Message(topics=[]))
    assert len(asked) == 1


def test_a_coordinator_that_loads_is_waited_for(net: FakeNet) -> None:
    found = Message(coordinators=[Message(key="t", node_id=2, host="b", port=2)])
    ends = iter([ErrorCode.coordinator_load_in_progress, ErrorCode.not_coordinator, ErrorCode.none])
    net.answers[A] = by_api(find=lambda _: found)
    net.answers[B] = by_api(end=lambda _: Message(error_code=next(ends)))
    answer = cluster_of(net, "a:1").call_coordinator("transaction", "t", END_TXN, Message(transactional_id="t"))
    assert answer.error_code == ErrorCode.none


def test_a_cluster_that_is_away_is_one_clear_error(net: FakeNet) -> None:
    with pytest.raises(ClusterUnreachable, match=r"no broker of the cluster at a:1, b:2 answers .*refused"):
        cluster_of(net, "a:1", "b:2").topics()
    with pytest.raises(ConnectionLost, match="lost the broker at a:1"):
        cluster_of(net, "a:1").call(METADATA, Message())


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (metadata(1, error=ErrorCode.unknown_topic_or_partition), "topic orders does not exist"),
        (metadata(1, partitions=0), "has no partition 0: it has 0 partitions"),
        (metadata(-1), "partition 0 of topic orders has no leader"),
    ],
)
def test_a_partition_without_a_leader_says_why(net: FakeNet, answer: Message, message: str) -> None:
    net.answers[A] = by_api(metadata=lambda _: answer)
    with pytest.raises(Failure, match=message):
        cluster_of(net, "a:1").leader("orders", 0)


def test_a_connection_pipelines_and_is_closed_for_good_when_it_is_lost(net: FakeNet) -> None:
    numbers: Iterator[Message | None] = iter([offsets(1), offsets(2), None])
    net.answers[A] = by_api(offsets=lambda _: next(numbers))
    with BlockingConnection(A, "test", 7.0, net.dial) as connection:
        connection.send(LIST_OFFSETS, Message(topics=[]))
        connection.send(LIST_OFFSETS, Message(topics=[]))
        with pytest.raises(RuntimeError, match="2 requests are in flight"):
            connection.call(LIST_OFFSETS, Message(topics=[]))
        got = [connection.receive().topics[0].partitions[0].offset for _ in range(2)]
        assert got == [1, 2]
        assert set(net.lines[0].timeouts) == {7.0}
        with pytest.raises(ConnectionLost, match="it hung up"):
            connection.call(LIST_OFFSETS, Message(topics=[]))
        assert not connection.is_open
        with pytest.raises(ConnectionLost, match="was closed"):
            connection.send(LIST_OFFSETS, Message(topics=[]))


def test_a_lost_connection_travels_between_processes() -> None:
    lost = pickle.loads(pickle.dumps(ConnectionLost(A, "it hung up")))
    assert (lost.address, lost.why) == (A, "it hung up")


@pytest.mark.parametrize("text", ["", "a", "a:", ":1", "a:b", "a:0", "a:65536"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(Failure, match="HOST:PORT"):
        parse_address(text)


def test_addresses_of_both_families_are_read() -> None:
    assert [str(parse_address(text)) for text in (" a:1", "[::1]:9092")] == ["a:1", "[::1]:9092"]
