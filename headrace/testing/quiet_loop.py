"""uvloop's event loop, extended to tell when it is idle.

A test that advances the clock wants to continue once everything that became due is done. This loop counts scheduled
callbacks (`call_soon` also runs each step of a task) and blocking work in threads. `rest` returns after a full
iteration in which only its own task was scheduled and no thread was working: then every task waits for a timer or for
IO.

Called by local_broker.py. All of it runs on the loop's own thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context
from typing import Any, cast

import uvloop

NAP_S = 0.0005


class QuietLoop(uvloop.Loop):
    def __init__(self) -> None:
        super().__init__()
        self._asked = 0
        self._working = 0

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        self._asked += 1
        return super().call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        self._working += 1
        work = cast("asyncio.Future[Any]", super().run_in_executor(executor, func, *args))
        work.add_done_callback(self._worked)
        return work

    def _worked(self, _: asyncio.Future[Any]) -> None:
        self._working -= 1

    async def rest(self, nudge: Callable[[], object], patience_s: float) -> bool:
        """Wait until the loop is idle; False if it is not after `patience_s`.

        `nudge` is called after every iteration: it fires timers that became due meanwhile.
        """
        give_up_at = self.time() + patience_s
        while self.time() < give_up_at:
            before = self._asked
            await asyncio.sleep(0)
            nudge()
            if self._working:
                await asyncio.sleep(NAP_S)  # threads need the interpreter too
            elif self._asked - before == 1:  # only this task's next step
                return True
        return False
