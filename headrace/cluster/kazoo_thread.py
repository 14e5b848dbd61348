"""kazoo's thread, optimized for many messages at a time: waiting, reading and handing results over. Used only by
cluster/zookeeper.py.

When a broker dies, the others are notified of thousands of partitions at once and read each of them again. In stock
kazoo, a message costs about fifteen system calls and two thread switches, and after each switch the thread may have to
wait for the GIL, which the event loop holds. Here:

- everything that the server has sent is read at once, and messages are taken from that buffer (kazoo supports sockets
  that have read ahead, because TLS sockets do: `pending` returns the number of buffered bytes);
- waiting is a single call of `poll`, where kazoo creates, fills and closes an epoll each time;
- responses and watches are called on the thread that reads them, where kazoo has another thread for each.

Invariants: whatever is called here only hands over to the event loop (`Mail`) and never blocks; messages are handed
over in the order in which the server sent them.
"""

from __future__ import annotations

import asyncio
import math
import select
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler

_READ_BYTES = 1 << 18


class Mail:
    """Hands calls from kazoo's thread to the event loop, in order; the loop is woken once for all pending calls."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lies_there: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._woken = False

    def put(self, callback: Callable[..., object], *args: Any) -> None:
        """Thread-safe. Does nothing if the loop is closed."""
        self._lies_there.append((callback, args))
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        self._woken = False  # first: whoever adds a call from now on wakes the loop again
        while self._lies_there:
            callback, args = self._lies_there.popleft()
            self._loop.call_soon(callback, *args)


class AheadSocket:
    """A connection that reads as much as is available, and returns as much as is requested."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._read = b""
        self._at = 0

    def pending(self) -> int:
        """Bytes that were read but not returned yet."""
        return len(self._read) - self._at

    def recv(self, size: int) -> bytes:
        if self._at == len(self._read):
            self._read, self._at = self._connection.recv(_READ_BYTES), 0
        part = self._read[self._at : self._at + size]
        self._at += len(part)
        return part

    def send(self, data: bytes) -> int:
        return int(self._connection.send(data))

    def fileno(self) -> int:
        return int(self._connection.fileno())

    def setblocking(self, blocking: bool) -> None:
        self._connection.setblocking(blocking)

    def close(self) -> None:
        self._connection.close()


class _Answer(AsyncResult):  # type: ignore[misc]  # kazoo has no types
    def _do_callbacks(self) -> None:
        for callback in self._callbacks:
            callback(self)


class OneThread(SequentialThreadingHandler):  # type: ignore[misc]
    """Where kazoo runs its threads."""

    def create_connection(self, *args: Any, **kwargs: Any) -> AheadSocket:
        return AheadSocket(super().create_connection(*args, **kwargs))

    def select(
        self, reading: Sequence[Any], writing: Sequence[Any], failing: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        ready = [one for one in reading if isinstance(one, AheadSocket) and one.pending()]
        asked = select.poll()
        by_number = {one.fileno(): one for one in (*reading, *writing)}
        for one in reading:
            asked.register(one, select.POLLIN)
        for one in writing:
            asked.register(one, select.POLLOUT)
        wait_ms = 0 if ready else None if timeout is None else math.ceil(timeout * 1000)
        found = [by_number[number] for number, _ in asked.poll(wait_ms)]
        ready += [one for one in reading if one in found and one not in ready]
        return ready, [one for one in writing if one in found], []

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def async_result(self) -> _Answer:
        return _Answer(self)
