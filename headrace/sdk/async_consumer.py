"""The asyncio consumer: the blocking one, driven from an event loop.

Holds no rules of its own. Waiting happens in the consumer's own thread; handing out and acknowledging happen on the
loop, at once, so a poll that is cancelled loses nothing: what it fetched is handed out by the next one.
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
            clock=clock,
            **overrides,
        )
        self._bridge = Bridge("headrace-consumer")
        self._closed = False

    async def open(self) -> None:
        """Start the client and subscribe, unless it runs. Every other call does this by itself."""
        await self._bridge.run(self.blocking.open)

    async def close(self) -> None:
        """Leave the group; what was acknowledged is committed. What was only handed out will come again."""
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
        """Commit now, and wait for it, what was acknowledged; with auto_ack, everything that was handed out."""
        await self._bridge.run(self.blocking.commit)

    async def assignment(self) -> list[Partition]:
        """The partitions this member reads now, as (topic, partition)."""
        return await self._bridge.run(self.blocking.assignment)

    async def seek(self, topic: str, partition: int, offset: int) -> None:
        """Read one partition from this offset on."""
        await self._bridge.run(self.blocking.seek, topic, partition, offset)

    async def seek_to_start(self) -> None:
        """Read all assigned partitions from their first message on. Waits for the assignment, if there is none yet."""
        await self._bridge.run(self.blocking.seek_to_start)

    async def seek_to_end(self) -> None:
        """Read all assigned partitions from what is written after now."""
        await self._bridge.run(self.blocking.seek_to_end)

    async def seek_to_time(self, moment: Moment) -> None:
        """Read all assigned partitions from the first message of that time or later: a datetime, or epoch ms."""
        await self._bridge.run(self.blocking.seek_to_time, moment)

    async def pause(self, *places: Partition) -> None:
        """Hand out nothing of these partitions, or of all, until `resume`."""
        await self._bridge.run(self.blocking.pause, *places)

    async def resume(self, *places: Partition) -> None:
        """Go on with these partitions, or with all."""
        await self._bridge.run(self.blocking.resume, *places)
