"""WriteTxnMarkers, v1 and v2: writes commit or abort markers to partitions that this broker leads.

Sent by the coordinators of other brokers, and by an administrator who ends a hanging transaction. From v2 on the
request says whether the marker's epoch is above that of the records, which is then checked (KIP-1228).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from headrace.api.contract import Request, Steps
from headrace.api.pieces import Pace, in_turns
from headrace.model.transaction_end import TransactionEnd
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message


class MarkerDesk(Protocol):
    def write_one(self, topic: str, partition: int, end: TransactionEnd) -> asyncio.Future[None] | None:
        """None if the marker is committed already, else a future of that. Raises KafkaError."""
        ...


_WRITES = 100  # markers in one piece


class WriteTxnMarkers:
    def __init__(self, desk: MarkerDesk) -> None:
        self._desk = desk

    def __call__(self, request: Request) -> Steps[Message | Awaitable[Message]]:
        waiting: list[tuple[Message, asyncio.Future[None]]] = []
        markers, pace = list[Message](), Pace(_WRITES)
        for marker in request.body.markers:
            markers.append((yield from self._marker(marker, waiting, pace)))
        response = Message(markers=markers)
        return response if not waiting else _when_committed(response, waiting)

    def _marker(
        self, marker: Message, waiting: list[tuple[Message, asyncio.Future[None]]], pace: Pace
    ) -> Steps[Message]:
        end = TransactionEnd(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            marker.transaction_version,
        )
        topics = []
        for topic in marker.topics:
            partitions = []
            for index in topic.partition_indexes:
                answer = Message(partition_index=index, error_code=ErrorCode.none)
                partitions.append(answer)
                try:
                    written = self._desk.write_one(topic.name, index, end)
                    if written is not None:
                        waiting.append((answer, written))
                except KafkaError as error:
                    answer.error_code = error.code
                if pace.is_over():
                    yield
            topics.append(Message(name=topic.name, partitions=partitions))
        return Message(producer_id=marker.producer_id, topics=topics)


async def _when_committed(response: Message, waiting: list[tuple[Message, asyncio.Future[None]]]) -> Message:
    async for answer, written in in_turns(waiting):
        try:
            await written
        except KafkaError as error:
            answer.error_code = error.code
    return response
