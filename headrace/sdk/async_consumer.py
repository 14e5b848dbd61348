"""The asyncio consumer: the blocking one, driven from an event loop.

Adds no rules of its own. Blocking calls run in the consumer's own thread. Messages are handed out and acknowledged on
the event loop without waiting, so a cancelled poll loses nothing: the next poll returns what it had fetched.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any, Self

from headrace.sdk.bridge import Bridge
from headrace.sdk.codecs import Codec, CodecName
from headrace.sdk.consumer import BATCH, ITERATION_WAIT_S, Consumer
from headrace.sdk.delivery import Delivery
from headrace.sdk.ledger import Partition
from headrace.sdk.message import Message
from headrace.sdk.profiles import Profile
from headrace.sdk.seeking import Moment
from headrace.world.clock import Clock


class AsyncConsumer:
    """Reads messages of topics, as a member of a group. Arguments and promises are those of Consumer.

    async with AsyncConsumer("127.0.0.1:9092", "orders", group="billing") as consumer:
        async for message in consumer:
            print(message.text)
    """

    def __init__(
        self,
        bootstrap: str,
        topics: str | Sequence[str],
        *,
        group: str,
        delivery: Delivery = "at-least-once",
        profile: Profile = "balanced",
        codec: CodecName | Codec = "bytes",
        auto_ack: bool = True,
        rate_limit: float | None = None,
        in_flight_limit: int | None = None,
        tags: Sequence[str] = (),
        match: str = "any",
        clock: Clock | None = None,
        **overrides: Any,
    ) -> None:
        self.blocking = Consumer(
            bootstrap,
            topics,
            group=group,
            delivery=delivery,
            profile=profile,
            codec=codec,
            auto_ack=auto_ack,
            rate_limit=rate_limit,
            in_flight_limit=in_flight_limit,
            tags=tags,
            match=match,
            clock=clock,
            **overrides,
        )
        self._bridge = Bridge("headrace-consumer")
        self._closed = False

    async def open(self) -> None:
        """Start the client and subscribe, unless it is running. Every other call does this by itself."""
        await self._bridge.run(self.blocking.open)

    async def close(self) -> None:
        """Commit what was acknowledged and leave the group. Messages without an acknowledgement will be redelivered."""
        if not self._closed:
            self._closed = True
            await self._bridge.run(self.blocking.close)
            self._bridge.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Messages without end, until the consumer is closed."""
        while not self._closed:
            if not self.blocking.ready():
                await self._bridge.run(self.blocking.ask, BATCH, ITERATION_WAIT_S)
            for message in self.blocking.take(1):
                yield message

    async def poll(self, max_messages: int = BATCH, timeout_s: float = 1.0) -> list[Message]:
        """The next messages, at most `max_messages`; waits for the first one, up to `timeout_s`. Empty if none came."""
        await self._bridge.run(self.blocking.ask, max_messages, timeout_s)
        return self.blocking.take(max_messages)

    def ack(self, *messages: Message) -> None:
        """The program is done with these messages, in any order."""
        self.blocking.ack(*messages)

    @property
    def in_flight(self) -> int:
        """Messages handed out and not yet acknowledged."""
        return self.blocking.in_flight

    async def commit(self) -> None:
        """Commit what was acknowledged (with auto_ack: what was handed out), and wait until that is done."""
        await self._bridge.run(self.blocking.commit)

    async def assignment(self) -> list[Partition]:
        """The partitions this member reads now, as (topic, partition)."""
        return await self._bridge.run(self.blocking.assignment)

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue reading one partition at this offset."""
        await self._bridge.run(self.blocking.seek, topic, partition, offset)

    async def seek_to_start(self) -> None:
        """Continue reading all assigned partitions at their first message; waits for an assignment if there is none."""
        await self._bridge.run(self.blocking.seek_to_start)

    async def seek_to_end(self) -> None:
        """Continue reading all assigned partitions at their end: only messages written from now on."""
        await self._bridge.run(self.blocking.seek_to_end)

    async def seek_to_time(self, moment: Moment) -> None:
        """Continue reading all assigned partitions at the first message at or after a time (datetime or epoch ms)."""
        await self._bridge.run(self.blocking.seek_to_time, moment)

    async def pause(self, *places: Partition) -> None:
        """Return no messages of these partitions, or of any if none is named, until `resume`."""
        await self._bridge.run(self.blocking.pause, *places)

    async def resume(self, *places: Partition) -> None:
        """Return messages of these partitions again, or of all if none is named."""
        await self._bridge.run(self.blocking.resume, *places)
