"""AddOffsetsToTxn, v0 to v4: adds a group's partition of `__consumer_offsets` to a transaction.

Sent before a transaction commits offsets of the group. Clients of transaction.version 2 do not send it, because
TxnOffsetCommit adds the partition (KIP-890). transaction_errors decides which errors a version gets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from headrace.api.contract import Reply, Request
from headrace.api.transaction_errors import told
from headrace.coordinators.runtime import partition_for
from headrace.coordinators.transactions.commands import AddPartitions
from headrace.coordinators.transactions.coordinator import Topics, TransactionCoordinator
from headrace.model.image import GROUP_OFFSETS_TOPIC
from headrace.model.topic_partition import TopicPartition
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message

_KNOWS_FENCED = 2
_KNOWS_ABORTABLE = 4


class AddOffsetsToTxn:
    def __init__(
        self,
        transactions: TransactionCoordinator,
        topics: Topics,
        ensure_offsets_topic: Callable[[], Awaitable[None]],
    ) -> None:
        self._transactions = transactions
        self._topics = topics
        self._ensure_offsets_topic = ensure_offsets_topic

    def __call__(self, request: Request) -> Reply:
        return self._add(request.body, request.version)

    async def _add(self, body: Message, version: int) -> Message:
        try:
            await self._ensure_offsets_topic()
            topic = self._topics.image().topics.get(GROUP_OFFSETS_TOPIC)
            if topic is None:
                raise KafkaError(ErrorCode.coordinator_not_available)
            place = TopicPartition(GROUP_OFFSETS_TOPIC, partition_for(body.group_id, len(topic.partitions)))
            command = AddPartitions(body.transactional_id, body.producer_id, body.producer_epoch, frozenset({place}))
            code: ErrorCode = await self._transactions.submit(command)
        except KafkaError as error:
            code = error.code
        knows_fenced, knows_abortable = version >= _KNOWS_FENCED, version >= _KNOWS_ABORTABLE
        return Message(error_code=told(code, knows_fenced=knows_fenced, knows_abortable=knows_abortable))
