"""Fetch, v4 to v18: committed bytes as they were produced.

A consumer with isolation level 1 (read_committed) gets what lies before the last stable offset, and a list of the
aborted transactions in it, by which it leaves out their records.

Stage one reads. If that gives fewer than min_bytes and no news, the reply waits once, until enough visible bytes have
been appended or max_wait has passed, and reads once more. A fetch of very many partitions is read in pieces, enters
each as a waiter when it has read it, and waits for a second at most. A request for which the express lane has waited
already (express_fetch.py) is answered with what there is. Bytes that are not in memory are read off the event loop. The
first batch goes out whole even if it is larger than the limits (KIP-74).

Sessions: see fetch_sessions. From version 13 on topics are named by id. An unknown id is UNKNOWN_TOPIC_ID.
From version 16 on, a client that asks the wrong broker or has an old epoch is told who leads (KIP-951, leader_hints).

A replica (replica_id >= 0) gets everything that is stored, committed or not: see replica_fetch. What both share, from
the list of partitions to the response, is in fetch_reading.

A fetch that asks for views looks at what they deliver before it answers: see view_fetch.

A consumer that says where it is (rack_id, from version 11 on) is sent to an in-sync replica in the same rack
(KIP-392), which serves it up to the high watermark that it knows of. What lies beyond is OFFSET_NOT_AVAILABLE there,
never out of range.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from headrace.api.contract import Caller, Reply, Request, Steps
from headrace.api.fetch_reading import Again, Attempt, FetchReading, PartitionRead, diverging
from headrace.api.fetch_sessions import FetchSessions, WantedPartition
from headrace.api.gate import Gate
from headrace.api.limits import AT_ONCE_ITEMS
from headrace.api.pieces import PIECE, Answer, settled
from headrace.api.replica_fetch import ReplicaFetch
from headrace.api.view_fetch import ViewFetch, Views
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.replicas.waiters import Audience, Wait
from headrace.wire.errors import KafkaError
from headrace.wire.messages import Message
from headrace.world.clock import Clock
from headrace.world.entropy import Entropy

READ_COMMITTED = 1
_WIDE_WAIT_MS = 1000  # at most, for very many partitions: what such a fetch holds is memory that others wait for


class Fetch:
    def __init__(
        self,
        host: ReplicaHost,
        gate: Gate,
        sessions: FetchSessions,
        clock: Clock,
        entropy: Entropy,
        reading: FetchReading,
        replicas_reading: FetchReading,
        views: Views,
    ) -> None:
        """Replicas are read for in their own way, with a budget of their own: no consumer holds up replication."""
        self._host = host
        self._gate = gate
        self._sessions = sessions
        self._clock = clock
        self._reading = reading
        self._views = views
        self._replicas = ReplicaFetch(replicas_reading, host, gate, clock, entropy)

    def __call__(self, request: Request) -> Reply:
        body = request.body
        replica_id = max(body.replica_id, body.replica_state.replica_id)
        if replica_id >= 0:
            return self._replicas(request, replica_id)
        return self._reading.pieces.begin(self._serve_consumer(request))

    def _serve_consumer(self, request: Request) -> Steps[Answer]:
        body, reading = request.body, self._reading
        try:
            plan = yield from self._sessions.plan(body, request.version)
        except KafkaError as error:
            return Message(error_code=error.code)
        reader = ConsumerReader(body, request.caller, self._host, self._gate)
        if len(plan.wanted) > AT_ONCE_ITEMS:
            body.max_wait_ms = min(body.max_wait_ms, _WIDE_WAIT_MS)
        may_wait = body.max_wait_ms > 0 and not request.has_waited and bool(plan.wanted)
        wanted_bytes: int = min(body.min_bytes, body.max_bytes)
        wait = self._wait((), reader, wanted_bytes, body) if may_wait and len(plan.wanted) > PIECE else None
        try:
            attempt = yield from reading.read(plan, body.max_bytes, reader, wait)
        except GeneratorExit:
            if wait is not None:
                wait.due.cancel()
            raise
        self._sessions.found_unknown(plan, attempt.unknown)
        if attempt.has_views:
            if wait is not None:
                wait.due.cancel()
            fetch = ViewFetch(reading, self._views, reader, body, self._clock)
            return asyncio.ensure_future(fetch.answer(attempt, may_wait=may_wait))
        missing_bytes = wanted_bytes - attempt.size
        if attempt.urgent or missing_bytes <= 0 or not may_wait:
            if wait is not None:
                wait.due.cancel()
            return (yield from reading.answer(attempt, _again(reading, reader, body)))
        if wait is None:
            read = [read.partition for read in attempt.reads if read.partition is not None]
            wait = self._wait(read, reader, missing_bytes, body)
        else:
            wait.found(attempt.size)
        return _WaitingFetch(reading, reader, attempt, body, wait).reply

    def _wait(self, partitions: Iterable[Partition], reader: ConsumerReader, missing_bytes: int, body: Message) -> Wait:
        audience = Audience.STABLE if reader.stable else Audience.COMMITTED
        return Wait(partitions, audience, missing_bytes, body.max_wait_ms / 1000, self._clock)


def _again(reading: FetchReading, reader: ConsumerReader, body: Message) -> Again[WantedPartition]:
    def again(attempt: Attempt[WantedPartition], room: int) -> Steps[Attempt[WantedPartition]]:
        return reading.read(attempt.plan, min(body.max_bytes, room), reader)

    return again


class ConsumerReader:
    """How a consumer reads: committed records of a leader, or of the replica in its rack."""

    __slots__ = ("_gate", "_host", "_rack", "caller", "stable")

    sees_views = True

    def __init__(self, body: Message, caller: Caller, host: ReplicaHost, gate: Gate) -> None:
        self.caller = caller
        self.stable: bool = body.isolation_level == READ_COMMITTED
        self._rack: str = body.rack_id
        self._host = host
        self._gate = gate

    def check(self, topic: str) -> None:
        self._gate.check_reader(self.caller, topic)

    def read(
        self, wanted: WantedPartition, partition: Partition, max_bytes: int, *, at_least_one: bool
    ) -> PartitionRead[WantedPartition]:
        news = self.admit(wanted, partition)
        if news is not None:
            return news
        found = partition.read(wanted.offset, max_bytes, at_least_one=at_least_one, stable=self.stable)
        return PartitionRead(wanted, partition, found)

    def admit(self, wanted: WantedPartition, partition: Partition) -> PartitionRead[WantedPartition] | None:
        rack, leads = self._rack, partition.leads
        if rack and not leads:
            partition.check_follower(wanted.leader_epoch, wanted.offset)
        else:
            partition.check_leader(wanted.leader_epoch)
        parted = diverging(wanted, partition)
        if parted is not None:
            return parted
        if rack and leads:
            nearest = self._host.nearest(partition, rack, wanted.offset)
            if nearest is not None:
                return PartitionRead(wanted, partition, preferred=nearest)
        return None


class _WaitingFetch:
    """A consumer's fetch that waits, until there are enough bytes, its timeout passes or the client disconnects."""

    __slots__ = ("_again", "_attempt", "_max_bytes", "_reading", "_wait", "reply")

    def __init__(
        self,
        reading: FetchReading,
        reader: ConsumerReader,
        attempt: Attempt[WantedPartition],
        body: Message,
        wait: Wait,
    ) -> None:
        self._reading = reading
        self._attempt = attempt
        self._again = _again(reading, reader, body)
        self._max_bytes: int = body.max_bytes
        self.reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._wait = wait
        self._wait.due.add_done_callback(self._resume)
        self.reply.add_done_callback(lambda _: self._wait.due.cancel())

    def _resume(self, _: object) -> None:
        if self.reply.done():
            return
        answer = self._reading.pieces.begin(self._answer())
        if isinstance(answer, Message):
            self.reply.set_result(answer)
        else:
            loading = asyncio.ensure_future(settled(answer))
            loading.add_done_callback(self._loaded)

    def _answer(self) -> Steps[Answer]:
        attempt, reading = self._attempt, self._reading
        if self._wait.in_vain and not attempt.size:  # nothing needs to be read again: most long polls end here
            return (yield from reading.response(attempt))
        return (yield from reading.answer((yield from self._again(attempt, self._max_bytes)), self._again))

    def _loaded(self, loading: asyncio.Future[Message]) -> None:
        if self.reply.done():
            return
        error = loading.exception()
        if error is not None:
            self.reply.set_exception(error)
        else:
            self.reply.set_result(loading.result())
