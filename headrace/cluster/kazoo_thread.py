"""How kazoo's thread waits, reads and tells, made for many messages at a time. Used by cluster/zookeeper.py alone.

When a broker dies, the others hear of thousands of partitions at once, and read each of them again. As kazoo comes, a
message costs some fifteen calls of the system and two changes of thread, and after each of them the thread may have to
wait until the event loop lets go of the interpreter. Here:

- what the server has sent is read whole, and messages are taken out of that (kazoo knows sockets that have read ahead,
  since those with TLS do: `pending` says how much);
- waiting is one call, `poll`, where kazoo makes, fills and closes an epoll each time;
- answers and watches are called on the thread that reads them, where kazoo has a further thread for each of the two.

What holds: whatever is called here only hands over to the event loop (`Mail`) and never waits; things are handed over
in the order in which the server sent them.
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
    """From kazoo's thread to the event loop, in order; the loop is woken once for all that lies there."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lies_there: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._woken = False

    def put(self, callback: Callable[..., object], *args: Any) -> None:
        """From any thread. A loop that was closed has nobody left to tell."""
        self._lies_there.append((callback, args))
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        self._woken = False  # first: who puts something from now on wakes us again
        while self._lies_there:
            callback, args = self._lies_there.popleft()
            self._loop.call_soon(callback, *args)


class AheadSocket:
    """A connection that reads as much as there is, and gives out as much as is asked for."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._read = b""
        self._at = 0

    def pending(self) -> int:
        """Bytes that were read and not given out yet."""
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
    """Where kazoo runs what it has to run."""

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
