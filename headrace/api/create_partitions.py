"""CreatePartitions, v0 to v3: increases the number of partitions; each topic succeeds or fails on its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable

from headrace.api.contract import Request, Steps
from headrace.api.deadline import result_of, settle
from headrace.api.pieces import Pace, in_turns
from headrace.cluster.controller import Controller
from headrace.model.image import TopicImage
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.world.clock import Clock

_TOPICS = 20  # that the controller is asked for in one piece


class CreatePartitions:
    def __init__(self, controller: Controller, clock: Clock) -> None:
        self._controller = controller
        self._clock = clock

    def __call__(self, request: Request) -> Steps[Awaitable[Message]]:
        body, pace = request.body, Pace(_TOPICS)
        times = Counter(topic.name for topic in body.topics)
        growing: dict[str, asyncio.Future[TopicImage] | None] = {}
        for topic in body.topics:
            if times[topic.name] > 1:
                growing[topic.name] = None
                continue
            assignments = None if topic.assignments is None else [one.broker_ids for one in topic.assignments]
            growing[topic.name] = self._controller.add_partitions(
                topic.name, topic.count, assignments, validate_only=body.validate_only
            )
            if pace.is_over():
                yield
        return self._answer(growing, body.timeout_ms)

    async def _answer(self, growing: dict[str, asyncio.Future[TopicImage] | None], timeout_ms: int) -> Message:
        await settle(self._clock, timeout_ms, [answer for answer in growing.values() if answer is not None])
        results = []
        async for name, answer in in_turns(growing.items()):
            try:
                if answer is None:
                    raise KafkaError(ErrorCode.invalid_request, f"topic {name!r} appears more than once in the request")
                result_of(answer)
                results.append(Message(name=name))
            except KafkaError as error:
                results.append(Message(name=name, error_code=error.code, error_message=error.message))
        return Message(results=results)
