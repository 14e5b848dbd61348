"""An idempotent producer with acks=all that retries without limit, with up to three batches in flight per partition.

Each partition has a lane: a queue of batches that are sent together and answered in order. If one is not stored, it and
all batches behind it are sent again in the same order, with the same sequences, to the current leader. A real
idempotent producer does the same, and the log must store only one copy. Only an error that cannot be resolved (an
unknown sequence for the oldest batch) ends the session: batches in flight become `info`, and a new producer begins.

`OneShotProducer` sends each message once, without idempotence, so that a rejection is a proof.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, NamedTuple

from headrace.client.blocking import Address, ConnectionLost
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from headrace.wire.record import Record
from headrace.wire.records import encode_batch
from headrace.world.clock import Clock
from sim.clients.caller import Caller, Nobody
from sim.clients.orders import Order, Orders
from sim.history.outcomes import outcome
from sim.history.payload import NO_TIME, Payload, digest_of
from sim.history.recorder import Recorder

_BY_NAME = 12  # the last version of Produce that names topics
_WINDOW = 3
_PER_SECOND = 0.6  # low, so that faults dominate the story
_TIMEOUT_MS = 3000
STORED = (ErrorCode.none, ErrorCode.duplicate_sequence_number)
_FATAL = (
    ErrorCode.out_of_order_sequence_number,
    ErrorCode.unknown_producer_id,
    ErrorCode.invalid_producer_epoch,
    ErrorCode.producer_fenced,
)


class Batch(NamedTuple):
    first_sequence: int
    operations: list[int]  # the recorder's numbers of its sends
    records: list[Record]


def produce_request(topic: str, partition: int, batch: bytes | bytearray, txn_id: str | None = None) -> Message:
    data = Message(name=topic, partition_data=[Message(index=partition, records=batch)])
    return Message(transactional_id=txn_id, acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[data])


def told(answer: Message) -> Message:
    """The response to a Produce of one partition."""
    part: Message = answer.responses[0].partition_responses[0]
    return part


class Writer:
    """Creates messages and records that they are sent."""

    def __init__(self, recorder: Recorder, clock: Clock, proc: str) -> None:
        self.proc = proc
        self._recorder = recorder
        self._clock = clock
        self._count = 0

    def message(
        self, tp: str, body: bytes, *, src: str = "", txn: str | None = None, order: Order | None = None
    ) -> tuple[int, Record]:
        """The number of the send, and the record at offset 0."""
        self._count += 1
        uid, timestamp = f"{self.proc}/{self._count}", self._clock.now_ms()
        key = b"k%d" % (self._count % 10)
        digest = digest_of(uid, src, key, body, (), NO_TIME if order else timestamp)
        said: dict[str, Any] = {"details": order.details} if order else {}
        op = self._recorder.invoke(
            self.proc, "send", tp=tp, uid=uid, digest=digest, key=key.decode(), src=src or None, txn=txn, **said
        )
        headers = order.headers if order else ()
        return op, Record(0, timestamp, key, Payload(uid, src, digest, body).packed(), headers)


def batch_of(records: list[Record], producer: tuple[int, int], sequence: int, attributes: int = 0) -> bytearray:
    placed = [record._replace(offset=at) for at, record in enumerate(records)]
    return encode_batch(
        placed, producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence, attributes=attributes
    )


class Producer:
    def __init__(
        self,
        caller: Caller,
        recorder: Recorder,
        clock: Clock,
        name: str,
        topic: str,
        partitions: int,
        orders: Orders | None = None,
    ) -> None:
        """`orders` says which of its messages are delayed."""
        self._caller = caller
        self._recorder = recorder
        self._clock = clock
        self.orders = orders
        self._name = name
        self._topic = topic
        self._partitions = partitions
        self._sessions = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Sends until told to stop, and then until everything is stored."""
        while not stop.is_set():
            self._sessions += 1
            proc = f"{self._name}/{self._sessions}"
            self._recorder.happened(proc, "open", details={"acks": "all", "idempotent": True, "in_flight": _WINDOW})
            producer = await self._caller.producer_id()
            writer = Writer(self._recorder, self._clock, proc)
            lanes = [_Lane(self, writer, producer, partition) for partition in range(self._partitions)]
            ended = asyncio.Event()
            await asyncio.gather(*(lane.run(stop, ended) for lane in lanes))
            self._recorder.happened(proc, "close")

    @property
    def parts(self) -> tuple[Caller, Recorder, str]:
        return self._caller, self._recorder, self._topic


class _Lane:
    """One partition of one producer's session."""

    def __init__(self, producer: Producer, writer: Writer, identity: tuple[int, int], partition: int) -> None:
        self._caller, self._recorder, self._topic = producer.parts
        self._orders = producer.orders
        self._writer = writer
        self._identity = identity
        self._partition = partition
        self._sequence = 0
        self._open: deque[Batch] = deque()

    async def run(self, stop: asyncio.Event, ended: asyncio.Event) -> None:
        chance = self._caller.random
        while not ended.is_set():
            if not stop.is_set():
                await asyncio.sleep(chance.expovariate(_PER_SECOND))
                for _ in range(chance.randint(1, _WINDOW)):
                    self._fill(chance.randint(1, 3))
            elif not self._open:
                return
            await self._send(ended)
        for batch in self._open:
            for op in batch.operations:
                self._recorder.info(op, err="SESSION_ENDED")

    def _fill(self, count: int) -> None:
        if len(self._open) >= _WINDOW:
            return
        body = b"x" * self._caller.random.randint(0, 60)
        tp = f"{self._topic}-{self._partition}"
        made = []
        for _ in range(count):
            order = None if self._orders is None else self._orders.draw(self._caller.random)
            op, record = self._writer.message(tp, body, order=order)
            if order is not None and self._orders is not None:
                self._orders.sent(op, tp, record)
            made.append((op, record))
        self._open.append(Batch(self._sequence, [op for op, _ in made], [record for _, record in made]))
        self._sequence += count

    async def _send(self, ended: asyncio.Event) -> None:
        """Sends all open batches once; those that are not stored stay open."""
        try:
            place, _ = await self._caller.leader(self._topic, self._partition)
            connection = await self._caller.connection(place)
            answers = []
            for batch in self._open:
                data = batch_of(batch.records, self._identity, batch.first_sequence)
                answers.append(
                    connection.send(ApiKey.PRODUCE, produce_request(self._topic, self._partition, data), _BY_NAME)
                )
            for answer in answers:
                part = told(await answer)
                if part.error_code not in STORED:
                    self._caller.forget_leader(self._topic, self._partition)
                    if part.error_code in _FATAL and answer is answers[0]:
                        ended.set()
                    break
                self._stored(self._open.popleft(), part.base_offset)
            else:
                return
        except (ConnectionLost, Nobody):
            self._caller.forget_leader(self._topic, self._partition)
        await self._caller.pause()

    def _stored(self, batch: Batch, base_offset: int) -> None:
        for at, op in enumerate(batch.operations):
            if base_offset >= 0:
                self._recorder.ok(op, off=base_offset + at)
                if self._orders is not None:
                    self._orders.stored(op, base_offset + at)
            else:
                self._recorder.ok(op)


class OneShotProducer:
    """Sends each message once; the table of outcomes classifies the result."""

    def __init__(
        self, caller: Caller, recorder: Recorder, clock: Clock, name: str, topic: str, partitions: int
    ) -> None:
        self._caller = caller
        self._recorder = recorder
        self._topic = topic
        self._partitions = partitions
        proc = f"{name}/1"
        recorder.happened(proc, "open", details={"acks": "all", "idempotent": False, "in_flight": 1})
        self._writer = Writer(recorder, clock, proc)

    async def run(self, stop: asyncio.Event) -> None:
        chance = self._caller.random
        while not stop.is_set():
            await asyncio.sleep(chance.expovariate(_PER_SECOND))
            partition = chance.randrange(self._partitions)
            try:
                place, _ = await self._caller.leader(self._topic, partition)
                await self._caller.connection(place)
            except (ConnectionLost, Nobody):
                self._caller.forget_leader(self._topic, partition)
                continue
            await self._send(place, partition)

    async def _send(self, place: Address, partition: int) -> None:
        op, record = self._writer.message(f"{self._topic}-{partition}", b"")
        request = produce_request(self._topic, partition, encode_batch([record]))
        try:
            part = told(await self._caller.at(place, ApiKey.PRODUCE, request, _BY_NAME))
        except ConnectionLost:
            self._caller.forget_leader(self._topic, partition)
            self._recorder.info(op, err="_TRANSPORT")
            return
        if part.error_code == ErrorCode.none:
            self._recorder.ok(op, off=part.base_offset)
        else:
            self._caller.forget_leader(self._topic, partition)
            name = ErrorCode(part.error_code).name.upper()
            self._recorder.end(op, outcome("send", name, tried_once=True), err=name)
