"""The asyncio Schedules: the blocking one, in a thread of its own.

Adds no rules. A call whose wait is cancelled still runs to its end, so what it sent may have taken effect.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from headrace.sdk.bridge import Bridge
from headrace.sdk.codecs import Codec, CodecName
from headrace.sdk.partitioner import Partitioner
from headrace.sdk.record import Key
from headrace.sdk.scheduled import Scheduled
from headrace.sdk.schedules import Found, Moment, Schedules
from headrace.world.clock import Clock


class AsyncSchedules:
    """The pending messages of topics. Arguments and promises are those of Schedules.

    async with AsyncSchedules("127.0.0.1:9092") as schedules:
        await schedules.cancel("reminders", receipt.partition, receipt.offset)
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        codec: CodecName | Codec = "bytes",
        partitioner: Partitioner | None = None,
        clock: Clock | None = None,
        **overrides: Any,
    ) -> None:
        self.blocking = Schedules(bootstrap, codec=codec, partitioner=partitioner, clock=clock, **overrides)
        self._bridge = Bridge("headrace-schedules")
        self._closed = False

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._bridge.run(self.blocking.close)
            self._bridge.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def list(
        self,
        topic: str,
        key: Key | None = None,
        due_after: Moment | None = None,
        due_before: Moment | None = None,
    ) -> Found:
        """What is pending, by due time: at or after `due_after` and before `due_before`, with this key."""
        return await self._bridge.run(self.blocking.list, topic, key, due_after, due_before)

    async def show(self, topic: str, partition: int, id: int) -> Scheduled:
        """One pending message; NotPending if there is none with this id."""
        return await self._bridge.run(self.blocking.show, topic, partition, id)

    async def cancel(self, topic: str, partition: int, id: int) -> None:
        """Never deliver this message (again). NotPending if it was delivered or cancelled before."""
        await self._bridge.run(self.blocking.cancel, topic, partition, id)

    async def move(
        self, topic: str, partition: int, id: int, *, delay: timedelta | None = None, deliver_at: Moment | None = None
    ) -> None:
        """Deliver this message at another time: `delay` from now, or at `deliver_at`. Its id stays."""
        await self._bridge.run(self.blocking.move, topic, partition, id, delay=delay, deliver_at=deliver_at)

    async def cancel_key(self, topic: str, key: Key, partition: int | None = None) -> None:
        """Cancel everything that is pending with this key, in the partition of the key. NotPending if nothing is."""
        await self._bridge.run(self.blocking.cancel_key, topic, key, partition)

    async def cancel_due(
        self, topic: str, due_after: Moment | None = None, due_before: Moment | None = None, key: Key | None = None
    ) -> int:
        """Cancel what is due in this time, with this key, and return how many messages that were."""
        return await self._bridge.run(self.blocking.cancel_due, topic, due_after, due_before, key)

    async def move_due(
        self,
        topic: str,
        due_after: Moment | None = None,
        due_before: Moment | None = None,
        key: Key | None = None,
        *,
        delay: timedelta | None = None,
        deliver_at: Moment | None = None,
    ) -> int:
        """Move what is due in this time, with this key, and return how many messages that were."""
        limits = (due_after, due_before, key)
        return await self._bridge.run(self.blocking.move_due, topic, *limits, delay=delay, deliver_at=deliver_at)

    async def cancel_each(self, pending: Iterable[Scheduled]) -> int:
        """Cancel these, and return how many of them were still pending."""
        return await self._bridge.run(self.blocking.cancel_each, pending)

    async def move_each(
        self, pending: Iterable[Scheduled], *, delay: timedelta | None = None, deliver_at: Moment | None = None
    ) -> int:
        """Move these, and return how many of them were still pending."""
        return await self._bridge.run(self.blocking.move_each, pending, delay=delay, deliver_at=deliver_at)
