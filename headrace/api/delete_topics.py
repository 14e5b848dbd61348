"""DeleteTopics, v1 to v6: each topic goes or is refused by itself; from v6 on by name or by id.

The topic is gone from the metadata when the answer leaves; its files follow in the background.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from headrace.api.contract import Reply, Request
from headrace.api.deadline import result_of, settle
from headrace.cluster.controller import Controller
from headrace.cluster.view import ClusterView
from headrace.model.image import TopicImage
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.world.clock import Clock


class DeleteTopics:
    def __init__(self, controller: Controller, view: ClusterView, clock: Clock) -> None:
        self._controller = controller
        self._view = view
        self._clock = clock

    def __call__(self, request: Request) -> Reply:
        body = request.body
        if request.version >= 6:
            asked = [(topic.name, topic.topic_id) for topic in body.topics]
        else:
            asked = [(name, None) for name in body.topic_names]
        deleting = [(name, topic_id, self._delete(name, topic_id)) for name, topic_id in asked]
        return self._answer(deleting, body.timeout_ms)

    def _delete(self, name: str | None, topic_id: uuid.UUID | None) -> asyncio.Future[TopicImage]:
        if name is not None:
            if topic_id is not None:
                return _refused(ErrorCode.invalid_request, f"give topic {name!r} by name or by id, not by both")
            return self._controller.delete_topic(name)
        found = None if topic_id is None else self._view.image.topics_by_id.get(topic_id)
        if found is None:
            return _refused(ErrorCode.unknown_topic_id, f"there is no topic with id {topic_id}")
        return self._controller.delete_topic(found.name)

    async def _answer(
        self, deleting: list[tuple[str | None, uuid.UUID | None, asyncio.Future[TopicImage]]], timeout_ms: int
    ) -> Message:
        await settle(self._clock, timeout_ms, [answer for _, _, answer in deleting])
        responses = []
        for name, topic_id, answer in deleting:
            try:
                gone = result_of(answer)
                responses.append(Message(name=gone.name, topic_id=gone.id))
            except KafkaError as error:
                responses.append(
                    Message(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)
                )
        return Message(responses=responses)


def _refused(code: ErrorCode, message: str) -> asyncio.Future[Any]:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    answer.set_exception(KafkaError(code, message))
    return answer
