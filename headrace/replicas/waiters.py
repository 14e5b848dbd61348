"""Requests that wait for a partition: producers for a commit, consumers and replicas for new records.

Owned by replicas.committed_log, which wakes them; everything runs on the event loop, so there are no locks. A waiter
that has given up is marked done and skipped. Waiting consumers count visible bytes only (log/visible.py): batches
without records wake nobody.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import Protocol

from headrace.wire.errors import KafkaError
from headrace.world.clock import Clock, Timer

_LEFT_AT_ONCE = 5000  # partitions: about two milliseconds
HIGH_WATERMARK_NEWS_S = 0.02  # how long replicas are left without news of nothing but the high watermark


class CommitWaiters:
    """Futures that complete once an offset lies below a rising mark. Nearly all arrive in the order of offsets, so a
    queue is enough; only a retry of an older append needs a search for its position."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    def wait_for(self, last_offset: int) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._queue
        if queue and queue[-1][0] > last_offset:
            queue.insert(bisect_right(queue, last_offset, key=lambda waiting: waiting[0]), (last_offset, future))
        else:
            queue.append((last_offset, future))
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
                future.exception()  # its connection may be closed: asyncio need not report it


class Wanting:
    """One fetch that waits for `missing_bytes` more over all its partitions, or for a change of role."""

    __slots__ = ("done", "has_news", "missing_bytes")

    def __init__(self, missing_bytes: int, done: asyncio.Future[None]) -> None:
        self.missing_bytes = missing_bytes
        self.done = done
        self.has_news = False  # offsets were added, maybe without records (log/visible.py)

    def add(self, size: int) -> None:
        self.has_news = True
        self.missing_bytes -= size
        if self.missing_bytes <= 0:
            self.wake()

    def wake(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class FetchWaiters:
    __slots__ = ("wanting",)

    def __init__(self) -> None:
        self.wanting: dict[Wanting, None] = {}  # in order of arrival, which is the order of waking

    def enter(self, wanting: Wanting) -> None:
        self.wanting[wanting] = None

    def leave(self, wanting: Wanting) -> None:
        self.wanting.pop(wanting, None)

    def arrived(self, size: int) -> None:
        for wanting in self.wanting:
            wanting.add(size)

    def wake_all(self) -> None:
        for wanting in self.wanting:
            wanting.wake()


class Audience(Enum):
    """Which records a reader may see: its isolation level."""

    COMMITTED = "committed"
    STABLE = "stable"  # read_committed: nothing of open transactions


class Watcher(Protocol):
    """A follower's fetch session, which is notified for as long as it watches."""

    def notify(self) -> None:
        """Something was appended, or this broker leads no longer."""
        ...

    def notify_high_watermark(self) -> None:
        """The high watermark has moved, and its delay is over."""
        ...


class Watermarked(Protocol):
    @property
    def high_watermark(self) -> int: ...

    @property
    def last_stable_offset(self) -> int: ...


class Readers:
    """All fetches that wait for one partition, and the replicas that watch it."""

    __slots__ = (
        "_clock", "_committed", "_ends_waiting", "_notifying", "_stable", "_stable_seen", "_uncommitted_bytes",
        "_watchers",
    )  # fmt: skip

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._committed = FetchWaiters()
        self._stable = FetchWaiters()
        self._watchers: dict[Watcher, None] = {}
        self._stable_seen = 0  # the last stable offset that its waiting readers know of
        self._uncommitted_bytes = 0
        self._ends_waiting = False  # markers are among the uncommitted batches
        self._notifying: Timer | None = None

    def enter(self, wanting: Wanting, audience: Audience, partition: Watermarked) -> None:
        """`wanting` counts what arrives from now on, until it leaves."""
        if audience is Audience.COMMITTED:
            self._committed.enter(wanting)
        else:
            self._stable_seen = max(self._stable_seen, partition.last_stable_offset)
            self._stable.enter(wanting)

    def leave(self, wanting: Wanting) -> None:
        self._committed.leave(wanting)
        self._stable.leave(wanting)

    def watch(self, watcher: Watcher) -> None:
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def appended(self, size: int, *, ends: bool = False) -> None:
        """`size` visible bytes were appended. `ends`: they are the end of a transaction."""
        self._uncommitted_bytes += size
        self._ends_waiting = self._ends_waiting or ends
        for watcher in self._watchers:
            watcher.notify()

    def committed(self, before: int, offset: int, end: int, partition: Watermarked) -> None:
        """The high watermark moved from `before` to `offset`, and the log ends at `end`. The number of bytes between is
        estimated from the share of offsets, which is exact enough for min_bytes."""
        if offset == end:
            size = self._uncommitted_bytes
        else:
            size = self._uncommitted_bytes * (offset - before) // (end - before)
        self._uncommitted_bytes -= size
        if self._committed.wanting:
            self._committed.arrived(size)
        if self._stable.wanting and partition.last_stable_offset > self._stable_seen:
            self._stable_seen = partition.last_stable_offset
            if self._ends_waiting:
                self._stable.wake_all()  # all of a transaction at once, however much that is
            else:
                self._stable.arrived(size)
        if offset == end:
            self._ends_waiting = False
        if self._watchers:
            self.notify_high_watermark_soon()

    def notify_high_watermark_soon(self) -> None:
        """By then it may have moved on, and one answer does for both."""
        if self._notifying is None:
            self._notifying = self._clock.call_later(HIGH_WATERMARK_NEWS_S, self._notify_high_watermark)

    def _notify_high_watermark(self) -> None:
        self._notifying = None
        for watcher in list(self._watchers):
            watcher.notify_high_watermark()

    def wake_all(self) -> None:
        self._committed.wake_all()
        self._stable.wake_all()
        for watcher in list(self._watchers):
            watcher.notify()


class Followed(Watermarked, Protocol):
    @property
    def readers(self) -> Readers: ...


class Wait:
    """A wait for so many bytes over all these partitions, for a change of role, or for the timeout: then `due` is done.
    A request that is no longer needed cancels `due`."""

    __slots__ = ("_audience", "_partitions", "_timer", "_wanting", "due", "in_vain")

    def __init__(
        self, partitions: Iterable[Followed], audience: Audience, missing_bytes: int, wait_s: float, clock: Clock
    ) -> None:
        self.due: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.in_vain = False  # the timeout passed, and nothing was added
        self._audience = audience
        self._partitions: list[Followed] = []
        self._wanting = Wanting(missing_bytes, self.due)
        for partition in partitions:
            self.enter(partition)
        self._timer = clock.call_later(wait_s, self._expired)
        self.due.add_done_callback(self._over)

    def enter(self, partition: Followed) -> None:
        """Wait for this one too; what comes from now on counts."""
        if self.due.done():
            return
        self._partitions.append(partition)
        partition.readers.enter(self._wanting, self._audience, partition)

    def found(self, size: int) -> None:
        """So many bytes were there already."""
        self._wanting.missing_bytes -= size
        if self._wanting.missing_bytes <= 0:
            self._wanting.wake()

    def _expired(self) -> None:
        self.in_vain = not self.due.done() and not self._wanting.has_news
        self._wanting.wake()

    def _over(self, _: object) -> None:
        self._timer.cancel()
        self._leave()

    def _leave(self) -> None:
        """Some partitions at a time: there may be thousands."""
        for partition in self._partitions[-_LEFT_AT_ONCE:]:
            partition.readers.leave(self._wanting)
        del self._partitions[-_LEFT_AT_ONCE:]
        if self._partitions:
            asyncio.get_running_loop().call_soon(self._leave)
