"""InitProducerId, v0 to v5, for idempotent producers: an id of its own for each (KIP-98), epoch 0.

A producer that already has an id and asks for a new epoch (v3 and up, KIP-360) gets a fresh id instead, which is what
Kafka does outside transactions. A transactional id is refused: transactions are not served yet.
"""

from __future__ import annotations

from headrace.api.contract import Reply, Request
from headrace.api.producer_ids import ProducerIds
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message


class InitProducerId:
    def __init__(self, ids: ProducerIds) -> None:
        self._ids = ids

    def __call__(self, request: Request) -> Reply:
        if request.body.transactional_id is not None:
            code = ErrorCode.invalid_request if request.body.transactional_id == "" else ErrorCode.coordinator_not_available
            return Message(error_code=code, producer_id=-1, producer_epoch=-1)
        return self._next()

    async def _next(self) -> Message:
        try:
            return Message(producer_id=await self._ids.next(), producer_epoch=0)
        except KafkaError as error:
            return Message(error_code=error.code, producer_id=-1, producer_epoch=-1)
