"""AlterPartitionReassignments, v0 and v1 (KIP-455, KIP-860): moves partitions to other brokers.

Each partition is accepted or rejected on its own. The response is sent when the move has started, not when it is done
(see ListPartitionReassignments). Null replicas cancel a move in progress.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable

from headrace.api.contract import Request, Steps
from headrace.api.deadline import result_of, settle
from headrace.api.pieces import Pace
from headrace.cluster.controller import Controller
from headrace.model.image import PartitionImage
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.world.clock import Clock

_Moving = dict[str, list[tuple[int, asyncio.Future[PartitionImage] | None]]]


_PARTITIONS = 100  # that the controller is asked to move in one piece


class AlterPartitionReassignments:
    def __init__(self, controller: Controller, clock: Clock) -> None:
        self._controller = controller
        self._clock = clock

    def __call__(self, request: Request) -> Steps[Message | Awaitable[Steps[Message]]]:
        body, pace = request.body, Pace(_PARTITIONS)
        if not self._controller.in_office:
            return Message(error_code=ErrorCode.not_controller, error_message="this broker is not the controller")
        free = body.allow_replication_factor_change if request.version >= 1 else True
        times = Counter((topic.name, one.partition_index) for topic in body.topics for one in topic.partitions)
        moving: _Moving = {}
        for topic in body.topics:
            for one in topic.partitions:
                asked = None
                if times[topic.name, one.partition_index] == 1:
                    asked = self._controller.move(topic.name, one.partition_index, one.replicas, factor_may_change=free)
                moving.setdefault(topic.name, []).append((one.partition_index, asked))
                if pace.is_over():
                    yield
        return self._moving(moving, body.timeout_ms)

    async def _moving(self, moving: _Moving, timeout_ms: int) -> Steps[Message]:
        answers = [asked for partitions in moving.values() for _, asked in partitions if asked is not None]
        await settle(self._clock, timeout_ms, answers)
        return _answer(moving)


def _answer(moving: _Moving) -> Steps[Message]:
    topics, pace = list[Message](), Pace()
    for name, partitions in moving.items():
        told = []
        for index, asked in partitions:
            told.append(_told(name, index, asked))
            if pace.is_over():
                yield
        topics.append(Message(name=name, partitions=told))
    return Message(responses=topics)


def _told(name: str, index: int, asked: asyncio.Future[PartitionImage] | None) -> Message:
    try:
        if asked is None:
            raise KafkaError(ErrorCode.invalid_request, f"{name}-{index} appears more than once in the request")
        result_of(asked)
    except KafkaError as error:
        return Message(partition_index=index, error_code=error.code, error_message=error.message)
    return Message(partition_index=index)
