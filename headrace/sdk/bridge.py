"""The bridge between asyncio and a blocking client: one thread for blocking calls, callbacks run on the event loop.

Used by AsyncProducer and AsyncConsumer. confluent-kafka has asyncio clients too, but its asyncio producer takes no
headers (so no tags and no ids), and using it would mean a second implementation of the SDK's rules. Invariant: blocking
calls of one client run one after the other, and only calls that never block run on the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Bridge:
    """Runs blocking calls, one after the other, in one thread."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call and wait for it. If the wait is cancelled, the call still runs to its end and its effects stay."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: call(*args, **kwargs))

    def close(self) -> None:
        self._thread.shutdown(wait=False)


class LoopCalls:
    """Passes callbacks from any thread to the event loop; callbacks that come together cost one wake-up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], None]] = deque()

    def post(self, call: Callable[[], None]) -> None:
        first = not self._calls
        self._calls.append(call)
        if first and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._arrive)

    def _arrive(self) -> None:
        while self._calls:
            self._calls.popleft()()
