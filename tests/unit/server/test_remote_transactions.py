"""Transactions that span brokers: coordinators elsewhere are asked, and markers reach leaders elsewhere."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.client.blocking import Address, ConnectionLost
from headrace.coordinators.runtime import partition_for
from headrace.coordinators.transactions.commands import AddPartitions, VerifyPartitions
from headrace.coordinators.transactions.markers import Mark
from headrace.model.image import TRANSACTION_STATE_TOPIC, BrokerImage, ClusterImage, PartitionImage, TopicImage
from headrace.model.transaction_end import TransactionEnd
from headrace.server.remote_transactions import CoordinatorDesk, MarkerPost
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message, check_fields
from sim.loop import run

HERE, THERE, NOBODY = 1, 2, -1
END = TransactionEnd(7, 3, 1, True, 2)


class Remote:
    """Stands for all connections to other brokers."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[int, int, Message]] = []

    async def call(self, broker: BrokerImage, api_key: int, message: Message, version: int | None = None) -> Message:
        check_fields(api_key, "request", message)
        self.asked.append((broker.id, api_key, message))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Message)
        return answer


class Coordinator:
    def submit(self, command: Any) -> asyncio.Future[str]:
        asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        asked.set_result("asked here")
        return asked


def image(leaders: dict[str, list[int]]) -> ClusterImage:
    topics = [
        TopicImage(
            name,
            uuid.uuid5(uuid.NAMESPACE_DNS, name),
            tuple(PartitionImage(at, (HERE, THERE), (HERE, THERE), leader, 0, 0) for at, leader in enumerate(led)),
            {},
        )
        for name, led in leaders.items()
    ]
    return ClusterImage("c", 1, {n: BrokerImage(n, "h", n, None, 0) for n in (HERE, THERE)}).with_topics(topics)


def desk(remote: Remote) -> CoordinatorDesk:
    """Of two partitions of transaction state, this broker leads the first."""
    now = image({TRANSACTION_STATE_TOPIC: [HERE, THERE]})
    return CoordinatorDesk(Coordinator(), lambda: now, HERE, remote)  # type: ignore[arg-type]


def id_in(partition: int) -> str:
    return next(name for name in map(str, range(100)) if partition_for(name, 2) == partition)


def told(codes: dict[tuple[str, int], ErrorCode]) -> Message:
    topics = [
        Message(
            name=name,
            results_by_partition=[
                Message(partition_index=index, partition_error_code=code)
                for (topic, index), code in codes.items()
                if topic == name
            ],
        )
        for name in dict.fromkeys(name for name, _ in codes)
    ]
    return Message(error_code=0, results_by_transaction=[Message(transactional_id="x", topic_results=topics)])


def test_the_coordinator_is_asked_where_it_is() -> None:
    async def story() -> None:
        verify = VerifyPartitions(id_in(1), 7, 3, (("a", 1), ("b", 0), ("a", 0)))
        remote = Remote(
            told({("a", 0): ErrorCode.none, ("a", 1): ErrorCode.transaction_abortable, ("b", 0): ErrorCode.none}),
            told({("a", 0): ErrorCode.none, ("b", 0): ErrorCode.concurrent_transactions}),
        )
        asked = desk(remote)
        assert await asked.submit(VerifyPartitions(id_in(0), 7, 3, (("a", 1),))) == "asked here"
        assert await asked.submit(verify) == [ErrorCode.transaction_abortable, ErrorCode.none, ErrorCode.none]
        add = AddPartitions(id_in(1), 7, 3, frozenset({("a", 0), ("b", 0)}), 2)
        assert await asked.submit(add) is ErrorCode.concurrent_transactions
        assert [(broker, key) for broker, key, _ in remote.asked] == [(THERE, ApiKey.ADD_PARTITIONS_TO_TXN)] * 2
        assert [message.transactions[0].verify_only for _, _, message in remote.asked] == [True, False]

    run(story(), seed=1)


def test_a_coordinator_that_cannot_be_reached_is_a_reason_to_try_again() -> None:
    async def story() -> None:
        asked = desk(Remote(ConnectionLost(Address("h", 2), "gone")))
        with pytest.raises(KafkaError) as refused:
            await asked.submit(VerifyPartitions(id_in(1), 7, 3, (("a", 1),)))
        assert refused.value.code is ErrorCode.coordinator_not_available

    run(story(), seed=1)


def answered(codes: dict[tuple[str, int], ErrorCode]) -> Message:
    topics = [
        Message(name=name, partitions=[Message(partition_index=index, error_code=code)])
        for (name, index), code in codes.items()
    ]
    return Message(markers=[Message(producer_id=7, topics=topics)])


def test_markers_of_one_moment_go_to_a_leader_in_one_request() -> None:
    async def story() -> None:
        codes = {
            ("a", 1): ErrorCode.none,
            ("a", 2): ErrorCode.unknown_topic_or_partition,
            ("a", 3): ErrorCode.invalid_producer_epoch,
        }
        remote = Remote(answered(codes))
        post = MarkerPost(lambda: image({"a": [HERE, THERE, THERE, THERE]}), HERE, remote)  # type: ignore[arg-type]
        assert post.write(Mark("a", 0, END)) is None, "led here"
        waiting = [post.write(Mark("a", index, END)) for index in (1, 2, 3)]
        results = await asyncio.gather(*(each for each in waiting if each is not None), return_exceptions=True)
        assert results[0] is None
        assert [error.code for error in results[1:] if isinstance(error, KafkaError)] == [
            ErrorCode.not_leader_or_follower,  # that it is gone is for our own view to say
            ErrorCode.invalid_producer_epoch,
        ]
        ((broker, key, message),) = remote.asked
        assert (broker, key) == (THERE, ApiKey.WRITE_TXN_MARKERS)
        (marker,) = message.markers
        assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (7, 3, True)
        assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("a", [1, 2, 3])]

    run(story(), seed=1)


def test_a_lost_connection_and_a_missing_leader_mean_try_again_and_a_missing_partition_means_done() -> None:
    async def story() -> None:
        remote = Remote(ConnectionLost(Address("h", 2), "gone"))
        post = MarkerPost(lambda: image({"a": [THERE, NOBODY]}), HERE, remote)  # type: ignore[arg-type]
        written = post.write(Mark("a", 0, END))
        assert written is not None
        with pytest.raises(KafkaError) as lost:
            await written
        assert lost.value.code is ErrorCode.network_exception
        with pytest.raises(KafkaError) as leaderless:
            post.write(Mark("a", 1, END))
        assert leaderless.value.code is ErrorCode.leader_not_available
        with pytest.raises(KafkaError) as gone:
            post.write(Mark("gone", 0, replace(END, commit=False)))
        assert gone.value.code is ErrorCode.unknown_topic_or_partition

    run(story(), seed=1)
