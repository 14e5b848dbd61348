"""DescribeTransactions, v0: the coordinator's state of transactional ids (KIP-664).

One that is named repeatedly is described once, since it may have very many partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from headrace.api.contract import Request, Steps
from headrace.api.pieces import Pace, in_turns
from headrace.coordinators.transactions.commands import DescribeTransaction
from headrace.coordinators.transactions.coordinator import TransactionCoordinator
from headrace.coordinators.transactions.transaction import Transaction
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message


class DescribeTransactions:
    def __init__(self, transactions: TransactionCoordinator) -> None:
        self._transactions = transactions

    def __call__(self, request: Request) -> Steps[Awaitable[Message]]:
        asked, pace = list[tuple[str, asyncio.Future[Transaction | None]]](), Pace()
        for name in dict.fromkeys(request.body.transactional_ids):
            asked.append((name, self._transactions.submit(DescribeTransaction(name))))
            if pace.is_over():
                yield
        return _answer(asked)


async def _answer(asked: list[tuple[str, asyncio.Future[Transaction | None]]]) -> Message:
    states = []
    async for name, pending in in_turns(asked):
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
