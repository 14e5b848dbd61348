"""ShareAcknowledge, v1 and v2: members of a share group say what has become of the records that they were handed out.

Types: 0 gap (there is no such record), 1 accept, 2 release (somebody may have it again), 3 reject (nobody may), and in
v2 4 renew (go on working on it), if the request says so. The reply is sent when all of it is stored.

The request belongs to a share session (share_sessions.py), which it cannot open; epoch -1 closes it, after the
acknowledgements, and what the member still holds is released.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable

from headrace.api.contract import Request, Steps
from headrace.api.share_acknowledging import LEADER_IS_NEWS, Acknowledged, Acknowledging, flags_problem, refusal
from headrace.api.share_sessions import FIRST_EPOCH, LAST_EPOCH
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message


class ShareAcknowledge:
    def __init__(self, acknowledging: Acknowledging) -> None:
        self._acknowledging = acknowledging

    def __call__(self, request: Request) -> Steps[Message | Awaitable[Message]]:
        body, acknowledging = request.body, self._acknowledging
        problem = flags_problem(body, fetches=False)
        if problem is not None:
            return refusal(KafkaError(ErrorCode.invalid_request, problem))
        group, member, epoch = body.group_id, body.member_id, body.share_session_epoch
        try:
            if epoch == FIRST_EPOCH:
                raise KafkaError(ErrorCode.invalid_share_session_epoch, "an acknowledgement cannot open a session")
            session = acknowledging.sessions.go_on(group, member, epoch, request.caller)
            yield from acknowledging.sessions.name(session, body)
        except KafkaError as error:
            return refusal(error)
        results = yield from acknowledging.stage(group, member, body.topics, renews=body.is_renew_ack)
        if epoch == LAST_EPOCH:
            acknowledging.sessions.end(session)
        return self._response(request, group, results)

    async def _response(self, request: Request, group: str, results: list[Acknowledged]) -> Message:
        told_ms = self._acknowledging.live.terms_of(group).told_lock_ms
        topics: dict[uuid.UUID | None, Message] = {}
        response = Message(responses=[], node_endpoints=[], acquisition_lock_timeout_ms=told_ms)
        for result in results:
            error = await result.settled()
            answer = Message(partition_index=result.index, error_code=0 if error is None else error.code)
            answer.current_leader = Message(leader_id=-1, leader_epoch=-1)
            if error is not None:
                answer.error_message = str(error)
                if error.code in LEADER_IS_NEWS and result.topic_id is not None:
                    self._acknowledging.hints.point(request.peer, result.topic_id, result.index, answer, response)
            topics.setdefault(result.topic_id, Message(topic_id=result.topic_id, partitions=[])).partitions.append(
                answer
            )
        response.responses = list(topics.values())
        return response
