"""InitProducerId, v0 to v5: an id and an epoch for a producer (KIP-98).

Without a transactional id every producer gets an id of its own, epoch 0, also one that already has an id and asks for a
new epoch (v3 and up, KIP-360), which is what Kafka does outside transactions. With a transactional id the coordinator
decides; a transaction that is open is aborted first, with CONCURRENT_TRANSACTIONS until that is done. Below v4 a fenced
producer is told INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from headrace.api.contract import Reply, Request
from headrace.api.producer_ids import ProducerIds
from headrace.coordinators.transactions.commands import InitProducer
from headrace.coordinators.transactions.coordinator import TransactionCoordinator
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message

_KNOWS_FENCED = 4


class InitProducerId:
    def __init__(self, ids: ProducerIds, transactions: TransactionCoordinator) -> None:
        self._ids = ids
        self._transactions = transactions

    def __call__(self, request: Request) -> Reply:
        body = request.body
        known = (body.producer_id, body.producer_epoch)
        if body.transactional_id == "" or (known[0] < 0) != (known[1] < 0):
            return _refused(ErrorCode.invalid_request)
        if body.transactional_id is None:
            return self._next()
        expected = known if known[0] >= 0 else None
        return self._with(InitProducer(body.transactional_id, body.transaction_timeout_ms, expected), request.version)

    async def _next(self) -> Message:
        try:
            return Message(producer_id=await self._ids.next(), producer_epoch=0)
        except KafkaError as error:
            return _refused(error.code)

    async def _with(self, command: InitProducer, version: int) -> Message:
        reply = await self._transactions.settle(command)
        if reply.error is not ErrorCode.none:
            fenced = reply.error is ErrorCode.producer_fenced and version < _KNOWS_FENCED
            return _refused(ErrorCode.invalid_producer_epoch if fenced else reply.error)
        return Message(producer_id=reply.producer_id, producer_epoch=reply.epoch)


def _refused(code: ErrorCode) -> Message:
    return Message(error_code=code, producer_id=-1, producer_epoch=-1)
