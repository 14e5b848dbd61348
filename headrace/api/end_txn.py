"""EndTxn, v0 to v5: commit or abort.

The answer leaves when the decision is durable; markers are written after that, on one broker before the client can ask
for anything else. From v5 on every end of a transaction gives its producer a new epoch, and sometimes a new id, which
the answer tells (KIP-890). From v4 on a producer whose transaction was aborted for its time is told
TRANSACTION_ABORTABLE when it commits; before, that it is fenced, which below v2 is INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from headrace.api.contract import Reply, Request
from headrace.coordinators.transactions.commands import EndTransaction
from headrace.coordinators.transactions.coordinator import TransactionCoordinator
from headrace.model.transaction_end import BUMPING_VERSION
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message

_BUMPS_EPOCH = 5
_KNOWS_ABORTABLE = 4
_KNOWS_FENCED = 2


class EndTxn:
    def __init__(self, transactions: TransactionCoordinator) -> None:
        self._transactions = transactions

    def __call__(self, request: Request) -> Reply:
        body, bumps = request.body, request.version >= _BUMPS_EPOCH
        command = EndTransaction(
            body.transactional_id,
            body.producer_id,
            body.producer_epoch,
            body.committed,
            BUMPING_VERSION if bumps else 0,
        )
        return self._end(command, request.version)

    async def _end(self, command: EndTransaction, version: int) -> Message:
        reply = await self._transactions.settle(command)
        return Message(
            error_code=_word(version, reply.error), producer_id=reply.producer_id, producer_epoch=reply.epoch
        )


def _word(version: int, code: ErrorCode) -> ErrorCode:
    if code is ErrorCode.transaction_abortable and version < _KNOWS_ABORTABLE:
        code = ErrorCode.producer_fenced
    if code is ErrorCode.producer_fenced and version < _KNOWS_FENCED:
        code = ErrorCode.invalid_producer_epoch
    return code
