"""Produce, v3 to v13 (0 to 2 are advertised, as Kafka does for old librdkafka, and refused).

Appends happen in stage one, in the order of the requests on the connection; with acks=all, or on a topic that syncs
before it answers, the reply waits in stage two until the records are committed or the timeout passes. acks=0 has no
reply; if such a write fails, the connection is closed, which makes the client look for the leader again.
Version 13 names topics by id; from 10 on, an answer of "not the leader" says who is (KIP-951). What is
allowed the gate decides (api.gate), for this path and for express_produce. What transactions need is in
transactional_produce; from version 12 on a write adds its partition (KIP-890).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from headrace.api.contract import Disconnect, Request, Steps
from headrace.api.gate import Gate
from headrace.api.leader_hints import LeaderHints
from headrace.api.pieces import Pace, finish
from headrace.api.transaction_entry import Admission
from headrace.api.transactional_produce import TransactionalProduce, refusal
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.wire.errors import ErrorCode, InvalidRecords, KafkaError
from headrace.wire.messages import Message
from headrace.world.clock import Clock

_Waiting = list[tuple[asyncio.Future[None], Message, Partition]]


class Produce:
    def __init__(
        self,
        host: ReplicaHost,
        gate: Gate,
        hints: LeaderHints,
        clock: Clock,
        transactions: TransactionalProduce,
    ) -> None:
        self._host = host
        self._gate = gate
        self._hints = hints
        self._clock = clock
        self._transactions = transactions

    def __call__(self, request: Request) -> Steps[Message | Awaitable[Message] | None]:
        admission = None
        if request.body.transactional_id is not None:
            admission = Admission()
            entered = self._transactions.enter(
                request, lambda topic, data: self._find(request, topic, data.index), admission
            )
            if entered is not None:
                return self._later(request, admission, entered)
        response, waiting, failed = yield from self._produce(request, admission)
        if request.body.acks == 0:
            if failed is not None:
                raise Disconnect(f"a Produce with acks=0 failed: {failed}")
            return None
        return response if not waiting else self._when_committed(request, response, waiting)

    async def _later(self, request: Request, admission: Admission, entered: asyncio.Future[None]) -> Message:
        await entered
        response, waiting, _ = await finish(self._produce(request, admission))
        if waiting:
            await self._when_committed(request, response, waiting)
        return response

    def _produce(
        self, request: Request, admission: Admission | None
    ) -> Steps[tuple[Message, _Waiting, KafkaError | None]]:
        """The response, what of it still has to be committed, and the first error. A request of more partitions than
        are written in one piece has a buffer of its own, which lasts."""
        waiting, pace = _Waiting(), Pace()
        response = Message(responses=[], node_endpoints=[])
        failed: KafkaError | None = None
        for topic in request.body.topic_data:
            answers = []
            for data in topic.partition_data:
                answer, problem = self._append(request, topic, data, waiting, admission)
                failed = failed or problem
                answers.append(answer)
                if problem is not None and problem.code is ErrorCode.not_leader_or_follower:
                    self._hints.point(request.peer, topic.topic_id or topic.name, data.index, answer, response)
                if pace.is_over():
                    yield
            response.responses.append(Message(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
        return response, waiting, failed

    def _append(
        self, request: Request, topic: Message, data: Message, waiting: _Waiting, admission: Admission | None
    ) -> tuple[Message, KafkaError | None]:
        acks = request.body.acks
        partition: Partition | None = None
        try:
            partition = self._find(request, topic, data.index)
            if admission is not None:
                _check_admitted(admission, partition, request.version)
            if data.records is None:
                raise KafkaError(ErrorCode.invalid_record, "a Produce request without records")
            self._gate.check_in_sync(acks, partition, data.records)
            appended = partition.append(data.records, transactional=admission is not None)
            answer = Message(
                index=data.index,
                error_code=0,
                base_offset=appended.base_offset,
                log_append_time=appended.append_time_ms,
                log_start_offset=appended.log_start_offset,
            )
            if acks != 0:
                future = partition.committed(appended) if acks == -1 else partition.stored(appended)
                if future is not None:
                    waiting.append((future, answer, partition))
            return answer, None
        except KafkaError as error:
            return _refusal(data.index, error, partition), error

    def _find(self, request: Request, topic: Message, index: int) -> Partition:
        """The partition, if the request may write to it."""
        transactional_id, caller = request.body.transactional_id, request.caller
        self._gate.check_acks(request.body.acks, transactional=transactional_id is not None)
        if transactional_id is not None:
            self._gate.check_transactional_id(caller, transactional_id)
        if request.version >= 13:
            partition = self._host.find_by_id(topic.topic_id, index)
            self._gate.check_writer(caller, partition.topic)
            return partition
        self._gate.check_writer(caller, topic.name)
        return self._host.find(topic.name, index)

    async def _when_committed(self, request: Request, response: Message, waiting: _Waiting) -> Message:
        """Every partition's fate by the deadline. What is not committed by then is stored all the same: the client
        learns that it does not know."""
        futures = [future for future, _, _ in waiting]
        timer = self._clock.call_later(request.body.timeout_ms / 1000, _give_up, futures)
        try:
            await asyncio.wait(futures)
        finally:
            timer.cancel()
        for future, answer, partition in waiting:
            error = future.exception()
            if isinstance(error, KafkaError):
                answer.error_code = error.code
                answer.error_message = error.message or None
                answer.base_offset = -1
                if error.code is ErrorCode.not_leader_or_follower:
                    self._hints.point(request.peer, partition.topic_id, partition.index, answer, response)
        return response


def _refusal(index: int, error: KafkaError, partition: Partition | None) -> Message:
    answer = Message(
        index=index,
        error_code=error.code,
        base_offset=-1,
        log_append_time=-1,
        log_start_offset=-1 if partition is None else partition.log.start_offset,
        error_message=error.message or None,
    )
    if isinstance(error, InvalidRecords):
        answer.record_errors = [
            Message(batch_index=place, batch_index_error_message=error.why) for place in error.places
        ]
    return answer


def _check_admitted(admission: Admission, partition: Partition, version: int) -> None:
    refused = refusal(admission, partition, version)
    if refused is not None:
        raise refused


def _give_up(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(KafkaError(ErrorCode.request_timed_out, "not committed within the request's timeout"))
