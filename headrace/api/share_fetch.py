"""ShareFetch, v1 and v2: a member of a share group is handed out records, and may acknowledge earlier ones on the way.

Stage one stages the acknowledgements and moves the share session on (share_sessions.py); then the partitions of the
session are read, one after the other from another beginning each time, until `max_records` are acquired: in mode 0
whole batches, in mode 1 (v2) never more. If there is nothing, the reply waits: for min_bytes of new records, for
records that come back or locks that become free, or for max_wait. An out-of-range share partition moves to the start
of the log and answers nothing. Records go through the same step as those of every consumer (log/visible).

The reply has the acknowledged partitions with what has become of that, and those with records or errors; `acquired`
says which of the records are this member's. In v2 a request may renew locks, and then fetches nothing.

A share partition whose stored state cannot be read yet is waited for, and not told as an error: clients give up on
errors that they do not know, and the coordinator comes back.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable

from headrace.api.contract import Request, Steps
from headrace.api.share_acknowledging import LEADER_IS_NEWS, Acknowledged, Acknowledging, flags_problem, refusal
from headrace.api.share_reading import STRICT, ShareReading, Wanted, Yield
from headrace.api.share_sessions import FIRST_EPOCH, LAST_EPOCH, ShareSession
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message
from headrace.world.clock import Clock


class ShareFetch:
    def __init__(self, acknowledging: Acknowledging, reading: ShareReading, clock: Clock) -> None:
        self._acknowledging = acknowledging
        self._reading = reading
        self._clock = clock

    def __call__(self, request: Request) -> Steps[Message | Awaitable[Message]]:
        body, acknowledging = request.body, self._acknowledging
        problem = flags_problem(body, fetches=True)
        if problem is not None:
            return refusal(KafkaError(ErrorCode.invalid_request, problem))
        group, member, epoch = body.group_id, body.member_id, body.share_session_epoch
        try:
            session = self._session(request)
            yield from acknowledging.sessions.name(session, body)
        except KafkaError as error:
            if error.code is ErrorCode.share_session_limit_reached:
                return self._refuse_later(error, body.max_wait_ms)
            return refusal(error)
        results = yield from acknowledging.stage(group, member, body.topics, renews=body.is_renew_ack)
        if epoch == LAST_EPOCH:
            acknowledging.sessions.end(session)
        else:
            acknowledging.sessions.forget(session, body)
        fetches = epoch != LAST_EPOCH and not body.is_renew_ack and body.max_records > 0 and body.max_bytes > 0
        return self._answer(request, session, results, fetches=fetches)

    def _session(self, request: Request) -> ShareSession:
        body, sessions = request.body, self._acknowledging.sessions
        if body.share_session_epoch != FIRST_EPOCH:
            return sessions.go_on(body.group_id, body.member_id, body.share_session_epoch, request.caller)
        if any(partition.acknowledgement_batches for topic in body.topics for partition in topic.partitions):
            raise KafkaError(ErrorCode.invalid_request, "a request that opens a session cannot acknowledge anything")
        return sessions.open(body.group_id, body.member_id, request.caller)

    async def _refuse_later(self, error: KafkaError, wait_ms: int) -> Message:
        await self._clock.sleep(max(0, wait_ms) / 1000)  # or the client would ask again at once, and again
        return refusal(error)

    async def _answer(
        self, request: Request, session: ShareSession, results: list[Acknowledged], *, fetches: bool
    ) -> Message:
        yields: list[Yield] = []
        if fetches:
            body = request.body
            wanted = Wanted(
                session.group,
                session.member,
                session.rotated(),
                body.max_records,
                body.batch_size,
                body.min_bytes,
                body.max_bytes,
                max(0, body.max_wait_ms) / 1000,
                strict=body.share_acquire_mode == STRICT,
            )
            # Acknowledgements are answered as soon as they are stored: who waits for records waits for them, too.
            yields = await self._reading.fetch(wanted, request.caller, at_once=bool(results))
        for result in results:
            await result.settled()
        return self._response(request, session, results, yields)

    def _response(
        self, request: Request, session: ShareSession, results: list[Acknowledged], yields: list[Yield]
    ) -> Message:
        told_ms = self._acknowledging.live.terms_of(session.group).told_lock_ms
        response = Message(responses=[], node_endpoints=[], acquisition_lock_timeout_ms=told_ms)
        answers: dict[tuple[uuid.UUID | None, int], Message] = {}
        for result in results:
            answer = answers.setdefault((result.topic_id, result.index), _empty(result.index))
            error = result.error
            if error is not None:
                answer.acknowledge_error_code, answer.acknowledge_error_message = error.code, str(error)
                self._point(request, error, result.topic_id, answer, response)
        for found in yields:
            answer = answers.setdefault((found.topic_id, found.index), _empty(found.index))
            if found.error is not None:
                answer.error_code, answer.error_message = found.error.code, str(found.error)
                self._point(request, found.error, found.topic_id, answer, response)
            else:
                answer.records = found.records
                answer.acquired_records = [
                    Message(first_offset=one.first, last_offset=one.last, delivery_count=one.count)
                    for one in found.acquired
                ]
        topics: dict[uuid.UUID | None, Message] = {}
        for (topic_id, _), answer in answers.items():
            topic = topics.setdefault(topic_id, Message(topic_id=topic_id, partitions=[]))
            topic.partitions.append(answer)
        response.responses = list(topics.values())
        return response

    def _point(
        self, request: Request, error: KafkaError, topic_id: uuid.UUID | None, answer: Message, response: Message
    ) -> None:
        if error.code in LEADER_IS_NEWS and topic_id is not None:
            self._acknowledging.hints.point(request.peer, topic_id, answer.partition_index, answer, response)


def _empty(index: int) -> Message:
    """`records` may not be null, and clients look at the leader."""
    return Message(
        partition_index=index,
        error_code=0,
        acknowledge_error_code=0,
        current_leader=Message(leader_id=-1, leader_epoch=-1),
        records=b"",
        acquired_records=[],
    )
