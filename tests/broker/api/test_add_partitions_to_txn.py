"""AddPartitionsToTxn answers once for each partition, however often a request names it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from tests.broker.api.transaction_client import ADD_PARTITIONS, TOPIC, TXN_OFFSET_COMMIT, TransactionClient

ABSENT = "absent"


@pytest.fixture
def client(broker: Any) -> Iterator[TransactionClient]:
    with TransactionClient(broker.port) as client:
        client.create_topic()
        assert client.init() == ErrorCode.none
        yield client


def named(*partitions: int, topic: str = TOPIC) -> Message:
    return Message(name=topic, partitions=list(partitions))


def answers(topics: list[Message]) -> list[tuple[str, list[tuple[int, str]]]]:
    """In the order of the answer: topics, with their partitions and the names of their codes."""
    return [
        (
            topic.name,
            [(part.partition_index, ErrorCode(part.partition_error_code).name) for part in topic.results_by_partition],
        )
        for topic in topics
    ]


REPEATED = [
    pytest.param([named(0, 1, 0)], id="a-partition-twice"),
    pytest.param([named(0), named(1, 0)], id="a-topic-twice"),
    pytest.param([named(0, 0), named(1, 1)], id="both"),
]


@pytest.mark.parametrize("topics", REPEATED)
@pytest.mark.parametrize("version", [4, 5])
def test_a_broker_that_verifies_repeated_partitions_hears_of_each_once(
    client: TransactionClient, version: int, topics: list[Message]
) -> None:
    assert client.add(3, [0]) == [ErrorCode.none]
    found = client.broker_asks(version, topics, client.epoch, verify_only=True)
    not_in = "transaction_abortable" if version == 5 else "invalid_txn_state"
    assert answers(found) == [(TOPIC, [(0, "none"), (1, not_in)])]


@pytest.mark.parametrize("topics", REPEATED)
@pytest.mark.parametrize("version", [4, 5])
def test_a_broker_that_adds_repeated_partitions_hears_of_each_once(
    client: TransactionClient, version: int, topics: list[Message]
) -> None:
    found = client.broker_asks(version, topics, client.epoch, verify_only=False)
    assert answers(found) == [(TOPIC, [(0, "none"), (1, "none")])]
    assert client.verify([0, 1]) == [ErrorCode.none, ErrorCode.none]


@pytest.mark.parametrize("topics", REPEATED)
@pytest.mark.parametrize("version", range(4))
def test_a_client_that_adds_repeated_partitions_hears_of_each_once(
    client: TransactionClient, version: int, topics: list[Message]
) -> None:
    body = Message(
        v3_and_below_transactional_id=client.id,
        v3_and_below_producer_id=client.producer_id,
        v3_and_below_producer_epoch=client.epoch,
        v3_and_below_topics=topics,
    )
    found = client.call(ADD_PARTITIONS, version, body).results_by_topic_v3_and_below
    assert answers(found) == [(TOPIC, [(0, "none"), (1, "none")])]


@pytest.mark.parametrize(
    ("verify_only", "known", "unknown"),
    [(True, "transaction_abortable", "transaction_abortable"), (False, "operation_not_attempted", None)],
)
def test_repeated_partitions_that_do_not_exist_are_told_once(
    client: TransactionClient, verify_only: bool, known: str, unknown: str | None
) -> None:
    assert client.add(3, [2]) == [ErrorCode.none]  # a transaction is open
    topics = [named(9, 0, 9), named(0, 0, topic=ABSENT)]
    found = client.broker_asks(5, topics, client.epoch, verify_only=verify_only)
    unknown = unknown or "unknown_topic_or_partition"
    assert answers(found) == [(TOPIC, [(9, unknown), (0, known)]), (ABSENT, [(0, unknown)])]


def test_offsets_sent_twice_for_a_partition_are_answered_twice_and_the_last_one_counts(
    client: TransactionClient,
) -> None:
    """TxnOffsetCommit answers in the shape of its request; Kafka writes both, and the later one wins."""
    client.find("g", 0)
    parts = [
        Message(partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata="")
        for offset in (5, 7)
    ]
    topic = Message(name=TOPIC, partitions=parts)
    body = Message(
        transactional_id=client.id,
        group_id="g",
        producer_id=client.producer_id,
        producer_epoch=client.epoch,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=[topic, topic],
    )
    answer = client.call(TXN_OFFSET_COMMIT, 5, body)
    assert [part.error_code for found in answer.topics for part in found.partitions] == [ErrorCode.none] * 4
    assert client.end(5, commit=True) == ErrorCode.none
    assert client.committed(stable=True) == (7, ErrorCode.none)
