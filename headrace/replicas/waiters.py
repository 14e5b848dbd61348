"""Those who wait for a partition: producers for a record to be committed, consumers for records to come.

Owned by `replicas.partition`, which wakes them; everything runs on the event loop, so there are no locks. A waiter
that is no longer interested is simply marked done and skipped.
"""

from __future__ import annotations

import asyncio
from collections import deque

from headrace.wire.errors import KafkaError


class CommitWaiters:
    """Futures that complete once an offset lies below a rising mark. Appends come in offset order: a queue will do."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    def wait_for(self, last_offset: int) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((last_offset, future))
        return future

    def advance(self, mark: int) -> None:
        queue = self._queue
        while queue and queue[0][0] < mark:
            future = queue.popleft()[1]
            if not future.done():
                future.set_result(None)

    def fail(self, error: KafkaError) -> None:
        """Everybody still waiting gets the error: leadership lost, log offline, topic deleted."""
        while self._queue:
            future = self._queue.popleft()[1]
            if not future.done():
                future.set_exception(error)


class Wanting:
    """One fetch that waits for `missing_bytes` more over all its partitions, or for what changes its answer."""

    __slots__ = ("done", "missing_bytes")

    def __init__(self, missing_bytes: int, done: asyncio.Future[None]) -> None:
        self.missing_bytes = missing_bytes
        self.done = done

    def add(self, size: int) -> None:
        self.missing_bytes -= size
        if self.missing_bytes <= 0:
            self.wake()

    def wake(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class FetchWaiters:
    __slots__ = ("_wanting",)

    def __init__(self) -> None:
        self._wanting: set[Wanting] = set()

    def __bool__(self) -> bool:
        return bool(self._wanting)

    def enter(self, wanting: Wanting) -> None:
        self._wanting.add(wanting)

    def leave(self, wanting: Wanting) -> None:
        self._wanting.discard(wanting)

    def arrived(self, size: int) -> None:
        for wanting in self._wanting:
            wanting.add(size)

    def wake_all(self) -> None:
        for wanting in self._wanting:
            wanting.wake()
