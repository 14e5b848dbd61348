"""Fetch, v4 to v18: committed bytes as they were produced.

A consumer with isolation level 1 (read_committed) gets what lies before the last stable offset, and a list of the
aborted transactions in it, by which it leaves out their records.

Stage one reads. If that gives fewer than min_bytes and no news, the reply waits once, until enough visible bytes have
been appended or max_wait has passed, and reads once more. A request for which the express lane has waited already
(express_fetch.py) is answered with what there is. Bytes that are not in memory are read off the event loop. The first
batch goes out whole even if it is larger than the limits (KIP-74).

Sessions: see fetch_sessions. From version 13 on topics are named by id. An unknown id is UNKNOWN_TOPIC_ID.
From version 16 on, a client that asks the wrong broker or has an old epoch is told who leads (KIP-951, leader_hints).

A replica (replica_id >= 0) gets everything that is stored, committed or not: see replica_fetch. What both share, from
the list of partitions to the response, is in fetch_reading.

A consumer that says where it is (rack_id, from version 11 on) is sent to an in-sync replica in the same rack
(KIP-392), which serves it up to the high watermark that it knows of. What lies beyond is OFFSET_NOT_AVAILABLE there,
never out of range.
"""

from __future__ import annotations

import asyncio

from headrace.api.contract import Caller, Reply, Request
from headrace.api.fetch_reading import Attempt, FetchReading, OffLoop, PartitionRead, diverging
from headrace.api.fetch_sessions import FetchSessions, WantedPartition
from headrace.api.gate import Gate
from headrace.api.leader_hints import LeaderHints
from headrace.api.replica_fetch import ReplicaFetch
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.replicas.waiters import Audience, Wait
from headrace.wire.errors import KafkaError
from headrace.wire.messages import Message
from headrace.world.clock import Clock
from headrace.world.entropy import Entropy

READ_COMMITTED = 1


class Fetch:
    def __init__(
        self,
        host: ReplicaHost,
        gate: Gate,
        sessions: FetchSessions,
        clock: Clock,
        entropy: Entropy,
        off_loop: OffLoop,
        max_bytes: int,
        hints: LeaderHints,
    ) -> None:
        self._host = host
        self._gate = gate
        self._sessions = sessions
        self._clock = clock
        self._reading = FetchReading(host, off_loop, max_bytes, hints)
        self._replicas = ReplicaFetch(self._reading, host, gate, clock, entropy)

    def __call__(self, request: Request) -> Reply:
        body = request.body
        replica_id = max(body.replica_id, body.replica_state.replica_id)
        return self._replicas(request, replica_id) if replica_id >= 0 else self._serve_consumer(request)

    def _serve_consumer(self, request: Request) -> Reply:
        body = request.body
        try:
            plan = self._sessions.plan(body, request.version)
        except KafkaError as error:
            return Message(error_code=error.code)
        reader = ConsumerReader(body, request.caller, self._host, self._gate)
        attempt = self._reading.read(plan, body.max_bytes, reader)
        missing_bytes = min(body.min_bytes, body.max_bytes) - attempt.size
        is_enough = attempt.urgent or missing_bytes <= 0 or not plan.wanted
        if is_enough or body.max_wait_ms <= 0 or request.has_waited:
            return self._reading.answer(attempt)
        return _WaitingFetch(self._reading, reader, attempt, body, missing_bytes, self._clock).reply


class ConsumerReader:
    """How a consumer reads: committed records of a leader, or of the replica in its rack."""

    __slots__ = ("_gate", "_host", "_rack", "caller", "stable")

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
        found = partition.read(wanted.offset, max_bytes, at_least_one=at_least_one, stable=self.stable)
        return PartitionRead(wanted, partition, found)


class _WaitingFetch:
    """A consumer's fetch that waits, until there are enough bytes, its timeout passes or the client disconnects."""

    __slots__ = ("_attempt", "_max_bytes", "_reader", "_reading", "_wait", "reply")

    def __init__(
        self,
        reading: FetchReading,
        reader: ConsumerReader,
        attempt: Attempt[WantedPartition],
        body: Message,
        missing_bytes: int,
        clock: Clock,
    ) -> None:
        self._reading = reading
        self._reader = reader
        self._attempt = attempt
        self._max_bytes: int = body.max_bytes
        self.reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        partitions = [read.partition for read in attempt.reads if read.partition is not None]
        audience = Audience.STABLE if reader.stable else Audience.COMMITTED
        self._wait = Wait(partitions, audience, missing_bytes, body.max_wait_ms / 1000, clock)
        self._wait.due.add_done_callback(self._resume)
        self.reply.add_done_callback(lambda _: self._wait.due.cancel())

    def _resume(self, _: object) -> None:
        if self.reply.done():
            return
        attempt, reading = self._attempt, self._reading
        if self._wait.in_vain and not attempt.size:  # nothing needs to be read again: most long polls end here
            self.reply.set_result(reading.response(attempt))
            return
        answer = reading.answer(reading.read(attempt.plan, self._max_bytes, self._reader))
        if isinstance(answer, Message):
            self.reply.set_result(answer)
        else:
            loading = asyncio.ensure_future(answer)
            loading.add_done_callback(self._loaded)

    def _loaded(self, loading: asyncio.Future[Message]) -> None:
        if self.reply.done():
            return
        error = loading.exception()
        if error is not None:
            self.reply.set_exception(error)
        else:
            self.reply.set_result(loading.result())
