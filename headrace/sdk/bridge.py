"""From asyncio to a blocking client and back: one thread per client, and callbacks that come home to the event loop.

Used by AsyncProducer and AsyncConsumer. confluent-kafka has asyncio clients of its own; its producer takes no headers
(so no tags and no ids) and would be a second set of rules beside the blocking one. Invariant: blocking calls of one
client run one after the other, and nothing of the client runs on the event loop's thread but what never waits.
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
        """Wait for a call. If the waiting is cancelled, the call still ends; its effects stay."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: call(*args, **kwargs))

    def close(self) -> None:
        self._thread.shutdown(wait=False)


class LoopCalls:
    """Carries calls from any thread to the event loop; many that come together cost one wake-up."""

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
