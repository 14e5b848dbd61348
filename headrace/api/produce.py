"""Produce, v3 to v13 (0 to 2 are advertised, as Kafka does for old librdkafka, and refused).

Appends happen in stage one, in the order of the requests on the connection; with acks=all, or on a topic that syncs
before it answers, the reply waits in stage two until the records are committed or the timeout passes. acks=0 has no
reply; if such a write fails, the connection is closed, which makes the client look for the leader again. A request
whose batches take long to open is held (long_appends.py): what it has appended so far stays, the rest is copied.
Version 13 names topics by id; from 10 on, an answer of "not the leader" says who is (KIP-951). What is
allowed the gate decides (api.gate), for this path and for express_produce. What transactions need is in
transactional_produce; from version 12 on a write adds its partition (KIP-890).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable

from headrace.api.contract import Disconnect, Held, Request, Steps
from headrace.api.gate import Gate
from headrace.api.leader_hints import LeaderHints
from headrace.api.long_appends import LongAppends
from headrace.api.pieces import Pace, finish
from headrace.api.transaction_entry import Admission
from headrace.api.transactional_produce import TransactionalProduce, copy_records, refusal
from headrace.log.opening import Opened, Step, Unprepared
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.wire.errors import ErrorCode, InvalidRecords, KafkaError
from headrace.wire.messages import Message
from headrace.world.clock import Clock


class _Written:
    """What has become of a request so far."""

    __slots__ = ("admission", "failed", "left", "request", "response", "waiting")

    def __init__(self, request: Request, admission: Admission | None) -> None:
        self.request = request
        self.admission = admission
        self.response = Message(responses=[], node_endpoints=[])
        self.waiting: list[tuple[asyncio.Future[None], Message, Partition]] = []  # to be committed
        self.failed: str | None = None  # the first error; an exception would keep its frames, and they this
        self.left: deque[tuple[Message, Message, list[Message]]] = deque()  # topic, partition, the topic's answers
        for topic in request.body.topic_data:
            answers: list[Message] = []
            self.response.responses.append(
                Message(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            )
            self.left.extend((topic, data, answers) for data in topic.partition_data)


class Produce:
    def __init__(
        self,
        host: ReplicaHost,
        gate: Gate,
        hints: LeaderHints,
        clock: Clock,
        transactions: TransactionalProduce,
        long_appends: LongAppends,
    ) -> None:
        self._host = host
        self._gate = gate
        self._hints = hints
        self._clock = clock
        self._transactions = transactions
        self._long_appends = long_appends

    def __call__(self, request: Request) -> Steps[Message | Awaitable[Message] | Held | None]:
        if request.body.transactional_id is None:
            written = _Written(request, None)
        else:
            admission = Admission()
            written = _Written(request, admission)
            entered = self._transactions.enter(
                request,
                lambda topic, data: self._find(request, topic, data.index),
                admission,
                lambda: self._write_later(written, None),
            )
            if entered is not None:
                return self._entered(written, entered)
        step = yield from self._write(written)
        if step is None:
            return self._answer(written)
        copied_bytes = copy_records(data for _, data, _ in written.left)
        return Held(self._held(written, step), copied_bytes)

    async def _entered(self, written: _Written, entered: asyncio.Future[None]) -> Message:
        await entered
        if written.waiting:
            await self._when_committed(written)
        return written.response

    async def _held(self, written: _Written, step: Step) -> Message | Awaitable[Message] | None:
        await self._write_later(written, step)
        return self._answer(written)

    def _answer(self, written: _Written) -> Message | Awaitable[Message] | None:
        if written.request.body.acks == 0:
            if written.failed is not None:
                raise Disconnect(f"a Produce with acks=0 failed: {written.failed}")
            return None
        return self._when_committed(written) if written.waiting else written.response

    async def _write_later(self, written: _Written, step: Step | None) -> None:
        """As `_write`, and what takes long in a thread; the records are copied by now."""
        step = step or await finish(self._write(written))
        while step is not None:
            records = written.left[0][1].records
            await self._long_appends.finish(step, records, lambda prepared: self._write_next(written, prepared))
            step = await finish(self._write(written))

    def _write(self, written: _Written) -> Steps[Step | None]:
        """Append what is left, in order. The step that the next append needs, if that takes long. A request of more
        partitions than are written in one piece has a buffer of its own, which lasts."""
        pace = Pace()
        try:
            while written.left:
                self._write_next(written, None)
                if pace.is_over():
                    yield
        except Unprepared as stopped:
            return stopped.step
        return None

    def _write_next(self, written: _Written, prepared: Opened | None) -> None:
        topic, data, answers = written.left[0]
        answer = self._append(written, topic, data, prepared)
        written.left.popleft()
        data.records = None  # they may be a copy, and the answer may take long
        answers.append(answer)
        if answer.error_code == ErrorCode.not_leader_or_follower:
            place = (topic.topic_id or topic.name, data.index)
            self._hints.point(written.request.peer, *place, answer, written.response)

    def _append(self, written: _Written, topic: Message, data: Message, prepared: Opened | None) -> Message:
        request, admission = written.request, written.admission
        acks = request.body.acks
        partition: Partition | None = None
        try:
            partition = self._find(request, topic, data.index)
            if admission is not None:
                _check_admitted(admission, partition, request.version)
            if data.records is None:
                raise KafkaError(ErrorCode.invalid_record, "a Produce request without records")
            self._gate.check_in_sync(acks, partition, data.records)
            appended = partition.append(data.records, transactional=admission is not None, prepared=prepared)
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
                    written.waiting.append((future, answer, partition))
            return answer
        except KafkaError as error:
            written.failed = written.failed or str(error)
            return _refusal(data.index, error, partition)

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

    async def _when_committed(self, written: _Written) -> Message:
        """Every partition's fate by the deadline. What is not committed by then is stored all the same: the client
        learns that it does not know."""
        request, response, waiting = written.request, written.response, written.waiting
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
