"""EndTxn, v0 to v5: commit or abort.

The response is sent when the decision is durable; the markers are written after that, on a single broker before the
client can send its next request. From v5 on each end of a transaction gives the producer a new epoch, and sometimes a
new id, which the response contains (KIP-890). transaction_errors decides which errors a version gets.
"""

from __future__ import annotations

from headrace.api.contract import Reply, Request
from headrace.api.transaction_errors import told
from headrace.coordinators.transactions.commands import EndTransaction
from headrace.coordinators.transactions.coordinator import TransactionCoordinator
from headrace.model.transaction_end import BUMPING_VERSION
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
        code = told(reply.error, knows_fenced=version >= _KNOWS_FENCED, knows_abortable=version >= _KNOWS_ABORTABLE)
        return Message(error_code=code, producer_id=reply.producer_id, producer_epoch=reply.epoch)
