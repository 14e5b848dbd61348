"""DescribeTransactions, v0: the coordinator's state of transactional ids (KIP-664)."""

from __future__ import annotations

import asyncio

from headrace.api.contract import Reply, Request
from headrace.coordinators.transactions.commands import DescribeTransaction
from headrace.coordinators.transactions.coordinator import TransactionCoordinator
from headrace.coordinators.transactions.transaction import Transaction
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message


class DescribeTransactions:
    def __init__(self, transactions: TransactionCoordinator) -> None:
        self._transactions = transactions

    def __call__(self, request: Request) -> Reply:
        names = request.body.transactional_ids
        return _answer([(name, self._transactions.submit(DescribeTransaction(name))) for name in names])


async def _answer(asked: list[tuple[str, asyncio.Future[Transaction | None]]]) -> Message:
    states = []
    for name, pending in asked:
        try:
            transaction = await pending
            if transaction is None:
                raise KafkaError(ErrorCode.transactional_id_not_found if name else ErrorCode.invalid_request)
            states.append(_described(name, transaction))
        except KafkaError as error:
            states.append(Message(transactional_id=name, error_code=error.code, producer_id=-1, producer_epoch=-1))
    return Message(transaction_states=states)


def _described(name: str, transaction: Transaction) -> Message:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(partition)
    return Message(
        transactional_id=name,
        transaction_state=transaction.state.value,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=[Message(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
