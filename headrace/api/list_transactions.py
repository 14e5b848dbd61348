"""ListTransactions, v0 to v2: the transactional ids that this broker coordinates (KIP-664).

Filters by state and producer id. v1 adds a minimum duration (KIP-994), v2 a pattern that must match the whole id
(KIP-1152); an invalid one is INVALID_REGULAR_EXPRESSION. As in Kafka, an id that has had no transaction yet passes any
duration filter: clients that leave the field at 0 mean all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from headrace.api.contract import Reply, Request, Steps
from headrace.api.pieces import Pace
from headrace.coordinators.groups.topic_patterns import UnfitPattern, compile_pattern
from headrace.coordinators.transactions.coordinator import TransactionCoordinator
from headrace.coordinators.transactions.transaction import NO_TIME, State, Transaction
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.world.clock import Clock

# With two states that tools may filter by, although no transaction is ever in them here.
_STATES = {state.value for state in State} | {"PrepareEpochFence", "Dead"}


class ListTransactions:
    def __init__(self, transactions: TransactionCoordinator, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    def __call__(self, request: Request) -> Reply:
        return self._list(request.body)

    async def _list(self, body: Message) -> Message | Steps[Message]:
        try:
            pattern = compile_pattern(body.transactional_id_pattern) if body.transactional_id_pattern else None
        except UnfitPattern:
            return Message(error_code=ErrorCode.invalid_regular_expression)
        try:
            return self._answer(await self._transactions.list_transactions(), body, pattern)
        except KafkaError as error:
            return Message(error_code=error.code)

    def _answer(
        self, listed: Iterable[tuple[str, Transaction]], body: Message, pattern: re.Pattern[str] | None
    ) -> Steps[Message]:
        wanted, producers = set(body.state_filters), set(body.producer_id_filters)
        states, pace = list[Message](), Pace()
        for name, found in listed:
            fits = self._fits(found, wanted, producers, body.duration_filter)
            if fits and (pattern is None or pattern.fullmatch(name)):
                states.append(
                    Message(transactional_id=name, producer_id=found.producer_id, transaction_state=found.state.value)
                )
            if pace.is_over():
                yield
        return Message(transaction_states=states, unknown_state_filters=sorted(wanted - _STATES))

    def _fits(self, transaction: Transaction, states: set[str], producers: set[int], longer_than_ms: int) -> bool:
        if states and transaction.state.value not in states:
            return False
        if producers and transaction.producer_id not in producers:
            return False
        if longer_than_ms < 0:
            return True
        return transaction.start_ms == NO_TIME or self._clock.now_ms() - transaction.start_ms > longer_than_ms
