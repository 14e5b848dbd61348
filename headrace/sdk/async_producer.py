"""The asyncio producer: the blocking one, driven from an event loop.

Adds no rules of its own. Queueing a message does not block, so it happens on the event loop. One thread polls for
delivery reports and passes them to the loop; calls that may block run in a second thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self

from headrace.sdk.async_consumer import AsyncConsumer
from headrace.sdk.bridge import Bridge, LoopCalls
from headrace.sdk.codecs import Codec, CodecName
from headrace.sdk.delivery import Delivery
from headrace.sdk.errors import SdkError, WrongMoment
from headrace.sdk.message import Message
from headrace.sdk.partitioner import Partitioner
from headrace.sdk.producer import WAIT_S, Producer
from headrace.sdk.profiles import Profile
from headrace.sdk.record import Record
from headrace.world.clock import Clock


class AsyncProducer:
    """Writes messages. Arguments and promises are those of Producer.

    async with AsyncProducer("127.0.0.1:9092") as producer:
        receipt = await producer.send_and_wait("orders", "a value", key="customer-7")
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        delivery: Delivery = "at-least-once",
        profile: Profile = "balanced",
        partitioner: Partitioner | None = None,
        codec: CodecName | Codec = "bytes",
        transactional_id: str | None = None,
        clock: Clock | None = None,
        **overrides: Any,
    ) -> None:
        self.blocking = Producer(
            bootstrap,
            delivery=delivery,
            profile=profile,
            partitioner=partitioner,
            codec=codec,
            transactional_id=transactional_id,
            clock=clock,
            **overrides,
        )
        self._bridge = Bridge("headrace-producer")
        self._loop_calls: LoopCalls | None = None
        self._listener: Thread | None = None
        self._ending = Event()

    async def open(self) -> None:
        """Start the client, unless it is running. Every other call does this by itself."""
        self._opened()

    async def close(self, timeout_s: float = 30.0) -> None:
        """Deliver the queued messages, then stop. Raises NotDelivered if some could not be delivered."""
        if self._ending.is_set():
            return
        self._ending.set()
        if self._listener is not None:
            await self._bridge.run(self._listener.join)
        try:
            await self._bridge.run(self.blocking.close, timeout_s)
        finally:
            self._bridge.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except SdkError:
            if error is None:  # an error raised inside the block is the more useful one
                raise

    async def send(self, topic: str, value: Any, **message: Any) -> None:
        """Queue one message; it is sent in the background. Waits while the queue is full.

        Takes key, partition, headers, tags, id, timestamp_ms, delay, deliver_at, cron and cron_tz as Producer.send
        does. A failure is raised by flush.
        """
        await self._queue(Record(value, topic=topic, **message), None)

    async def send_and_wait(self, topic: str, value: Any, **message: Any) -> Message:
        """Send one message and wait for the acknowledgement. Returns the receipt: its partition and offset."""
        outcome: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        await self._queue(Record(value, topic=topic, **message), outcome)
        return await outcome

    async def flush(self, timeout_s: float = 120.0) -> None:
        """Wait until every message is delivered. Raises NotDelivered if some were not."""
        self._opened()
        await self._bridge.run(self.blocking.flush, timeout_s)

    @asynccontextmanager
    async def transaction(self, consumer: AsyncConsumer | None = None) -> AsyncIterator[None]:
        """Producer.transaction, for `async with`."""
        self._opened()
        source = consumer.blocking if consumer is not None else None
        await self._bridge.run(self.blocking.begin_transaction)
        try:
            yield
            await self._bridge.run(self.blocking.commit_transaction, source)
        except BaseException as error:
            await self._bridge.run(self.blocking.abort_transaction, error, source)
            raise

    async def _queue(self, record: Record, outcome: asyncio.Future[Message] | None) -> None:
        loop_calls = self._opened()
        topic = record.topic or ""
        if not self.blocking.knows(topic):
            await self._bridge.run(self.blocking.learn, topic)
        if record.is_delayed and not self.blocking.knows_delays(topic):
            await self._bridge.run(self.blocking.learn_delays, topic)

        def report(error: SdkError | None, receipt: Message) -> None:
            loop_calls.post(lambda: _settle(outcome, error, receipt))

        on_delivery = report if outcome is not None else None
        if not self.blocking.offer_record(record, on_delivery):
            await self._bridge.run(self.blocking.send_record, record, on_delivery=on_delivery)

    def _opened(self) -> LoopCalls:
        if self._ending.is_set():
            raise WrongMoment("this producer is closed: open a new one")
        if self._loop_calls is None:
            self._loop_calls = LoopCalls(asyncio.get_running_loop())
            self.blocking.open()
            self._listener = Thread(target=self._listen, name="headrace-producer-listener", daemon=True)
            self._listener.start()
        return self._loop_calls

    def _listen(self) -> None:
        while not self._ending.is_set():
            with suppress(SdkError):  # a fatal error: the next send or commit raises it again
                self.blocking.poll(WAIT_S)


def _settle(outcome: asyncio.Future[Message] | None, error: SdkError | None, receipt: Message) -> None:
    if outcome is None or outcome.done():
        return
    if error is None:
        outcome.set_result(receipt)
    else:
        outcome.set_exception(error)
