"""DeleteTopics, v1 to v6: each topic is deleted or rejected on its own; since v6 by name or by id.

When the response is sent, the topic is gone from the metadata; its files are deleted in the background. A topic that
appears twice in a request is rejected and kept. If `delete.topic.enable` is off, all are rejected.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Awaitable
from typing import Any

from headrace.api.contract import Request, Steps
from headrace.api.deadline import result_of, settle
from headrace.api.pieces import Pace, in_turns
from headrace.cluster.controller import Controller
from headrace.cluster.view import ClusterView
from headrace.model.image import TopicImage
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.world.clock import Clock

_Asked = tuple[str | None, uuid.UUID | None]  # a name or an id
_Deleting = dict[_Asked, asyncio.Future[TopicImage]]
_TOPICS = 20  # that the controller is asked for in one piece


class DeleteTopics:
    def __init__(self, controller: Controller, view: ClusterView, clock: Clock, *, enabled: bool = True) -> None:
        self._controller = controller
        self._view = view
        self._clock = clock
        self._enabled = enabled

    def __call__(self, request: Request) -> Steps[Awaitable[Message]]:
        body, pace = request.body, Pace(_TOPICS)
        if request.version >= 6:
            asked = [(topic.name, topic.topic_id) for topic in body.topics]
        else:
            asked = [(name, None) for name in body.topic_names]
        if not self._enabled:
            code = ErrorCode.topic_deletion_disabled if request.version >= 3 else ErrorCode.invalid_request
            why = "topic deletion is disabled: delete.topic.enable is off"
            return self._answer({one: _refused(code, why) for one in asked}, body.timeout_ms)
        times = Counter(map(self._meant, asked))
        deleting: _Deleting = {}
        for one in dict.fromkeys(asked):
            deleting[one] = self._delete(*one, times[self._meant(one)])
            if pace.is_over():
                yield
        return self._answer(deleting, body.timeout_ms)

    def _meant(self, asked: _Asked) -> object:
        """A key that is equal for a topic's name and its id. An entry with both is its own key, and is rejected."""
        name, topic_id = asked
        if topic_id is None or name is not None:
            return name if topic_id is None else asked
        found = self._view.image.topics_by_id.get(topic_id)
        return topic_id if found is None else found.name

    def _delete(self, name: str | None, topic_id: uuid.UUID | None, times: int) -> asyncio.Future[TopicImage]:
        if name is None and topic_id is None:
            return _refused(ErrorCode.invalid_request, "a topic needs a name or an id; the request has neither")
        if name is not None and topic_id is not None:
            return _refused(ErrorCode.invalid_request, f"topic {name!r} must be given by name or by id, not by both")
        if times > 1:
            return _refused(ErrorCode.invalid_request, f"topic {name or topic_id} appears {times} times in the request")
        if name is not None:
            return self._controller.delete_topic(name)
        assert topic_id is not None
        found = self._view.image.topics_by_id.get(topic_id)
        if found is None:
            return _refused(ErrorCode.unknown_topic_id, f"there is no topic with id {topic_id}")
        return self._controller.delete_topic(found.name)

    async def _answer(self, deleting: _Deleting, timeout_ms: int) -> Message:
        await settle(self._clock, timeout_ms, list(deleting.values()))
        responses = []
        async for (name, topic_id), answer in in_turns(deleting.items()):
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
