"""AddPartitionsToTxn, v0 to v5: the partitions that a transaction is going to write to.

Up to v3 a client adds partitions to its one transaction; clients of transaction.version 2 do not send it, because
Produce adds them (KIP-890). From v4 on brokers send it on behalf of clients, for many transactions at once, and may
only verify that partitions have been added (`verify_only`). If one partition does not exist, none is added, and the
others get OPERATION_NOT_ATTEMPTED. As in Kafka, the response has each topic and partition of a transaction once, even
if the request repeats them. transaction_errors decides which errors a version gets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from msgspec import Struct

from headrace.api.contract import Request, Steps
from headrace.api.pieces import Pace, in_turns
from headrace.api.transaction_errors import told
from headrace.coordinators.transactions.commands import AddPartitions, VerifyPartitions
from headrace.coordinators.transactions.coordinator import Topics, TransactionCoordinator
from headrace.model.image import ClusterImage
from headrace.model.topic_partition import TopicPartition
from headrace.model.transaction_end import BUMPING_VERSION
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message

_MANY = 4
_KNOWS_FENCED = 2
_KNOWS_ABORTABLE = 5


class _Asked(Struct):
    """One transaction of the request: its partitions without duplicates, their error codes, and the pending result."""

    transactional_id: str
    codes: dict[TopicPartition, ErrorCode]
    pending: asyncio.Future[Any] | None = None


class AddPartitionsToTxn:
    def __init__(self, transactions: TransactionCoordinator, topics: Topics) -> None:
        self._transactions = transactions
        self._topics = topics

    def __call__(self, request: Request) -> Steps[Awaitable[Message]]:
        body, pace = request.body, Pace()
        if request.version < _MANY:
            name = body.v3_and_below_transactional_id
            producer_id, epoch = body.v3_and_below_producer_id, body.v3_and_below_producer_epoch
            asked = [self._ask(name, producer_id, epoch, body.v3_and_below_topics, verify=False, version=0)]
        else:
            asked = []
            for part in body.transactions:
                asked.append(
                    self._ask(
                        part.transactional_id,
                        part.producer_id,
                        part.producer_epoch,
                        part.topics,
                        verify=part.verify_only,
                        version=BUMPING_VERSION,
                    )
                )
                if pace.is_over(1 + len(asked[-1].codes)):
                    yield
        return _answer(asked, request.version)

    def _ask(
        self, name: str, producer_id: int, epoch: int, topics: list[Message], *, verify: bool, version: int
    ) -> _Asked:
        image = self._topics.image()
        named = [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]
        asked = _Asked(name, dict.fromkeys(named, ErrorCode.none))
        unknown = {place for place in asked.codes if image.partition(*place) is None}
        if verify:
            asked.pending = self._transactions.submit(VerifyPartitions(name, producer_id, epoch, tuple(asked.codes)))
        elif unknown:
            asked.codes = dict.fromkeys(asked.codes, ErrorCode.operation_not_attempted)
            asked.codes |= {place: _unknown(image, place.topic) for place in unknown}
        else:
            asked.pending = self._transactions.submit(
                AddPartitions(name, producer_id, epoch, frozenset(asked.codes), version)
            )
        return asked


def _unknown(image: ClusterImage, topic: str) -> ErrorCode:
    """Producers retry until an unknown topic is known; a view is read-only for good."""
    known = image.topics.get(topic)
    is_view = known is not None and known.is_view
    return ErrorCode.invalid_topic_exception if is_view else ErrorCode.unknown_topic_or_partition


async def _answer(asked: list[_Asked], version: int) -> Message:
    results = []
    async for part in in_turns(asked):
        if part.pending is not None:
            try:
                reply = await part.pending
                codes = reply if isinstance(reply, list) else [reply] * len(part.codes)
            except KafkaError as error:
                codes = [error.code] * len(part.codes)
            part.codes = dict(zip(part.codes, codes, strict=True))
        results.append(Message(transactional_id=part.transactional_id, topic_results=_topics(part, version)))
    if version >= _MANY:
        return Message(results_by_transaction=results)
    return Message(results_by_topic_v3_and_below=results[0].topic_results)


def _topics(part: _Asked, version: int) -> list[Message]:
    topics: dict[str, list[Message]] = {}
    for (name, index), code in part.codes.items():
        result = Message(partition_index=index, partition_error_code=_word(version, code))
        topics.setdefault(name, []).append(result)
    return [Message(name=name, results_by_partition=results) for name, results in topics.items()]


def _word(version: int, code: ErrorCode) -> ErrorCode:
    return told(code, knows_fenced=version >= _KNOWS_FENCED, knows_abortable=version >= _KNOWS_ABORTABLE)
