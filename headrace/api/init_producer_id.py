"""InitProducerId, v0 to v5: an id and an epoch for a producer (KIP-98).

Without a transactional id every request gets a new producer id with epoch 0, even if the producer already has an id and
requests a new epoch (since v3, KIP-360), as in Kafka. With a transactional id the coordinator decides; an open
transaction is aborted first, and the client gets CONCURRENT_TRANSACTIONS until that is done. Below v4 a fenced producer
gets INVALID_PRODUCER_EPOCH.
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
