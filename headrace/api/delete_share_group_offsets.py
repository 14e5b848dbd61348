"""DeleteShareGroupOffsets, v0: forgets where a share group without members is in topics (KIP-932).

A topic that its members subscribe to later is new to the group. NON_EMPTY_GROUP if the group has members.
"""

from __future__ import annotations

from headrace.api.contract import Reply, Request
from headrace.api.share_group_offsets import ShareGroupOffsets
from headrace.coordinators.groups.offsets import Topics
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message


class DeleteShareGroupOffsets:
    def __init__(self, offsets: ShareGroupOffsets, topics: Topics) -> None:
        self._offsets = offsets
        self._topics = topics

    def __call__(self, request: Request) -> Reply:
        return self._answer(request.body)

    async def _answer(self, body: Message) -> Message:
        names = list(dict.fromkeys(topic.topic_name for topic in body.topics))
        known = self._topics.image().topics
        try:
            results = await self._offsets.forget(body.group_id, names)
        except KafkaError as error:
            return Message(error_code=error.code, error_message=error.message or None, responses=[])
        return Message(
            responses=[
                Message(
                    topic_name=name,
                    topic_id=known[name].id if name in known else None,
                    error_code=ErrorCode.none if refusal is None else refusal.code,
                    error_message=None if refusal is None else refusal.message or None,
                )
                for name, refusal in results.items()
            ]
        )
