"""A simulated process: all tasks of one program, which can be paused, resumed or killed together.

All programs of a simulation share one event loop (sim/loop.py). The context tells what belongs to which process: a task
that a process starts, and every callback and timer that descends from it, carries the process in its context variables,
and the loop checks this before it runs one. A paused process runs nothing, and handles its timers and messages when it
is resumed, as after SIGSTOP and SIGCONT. A killed one never runs again, not even a `finally`: its tasks stay where they
are, like the memory of a process that has ended.

Used by sim/cluster.py; a callback without a process (the network, the ensemble, the story) always runs.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

OWNER: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class Process:
    def __init__(self, name: str) -> None:
        self.name = name
        self.runs = True
        self.paused = False
        self.dead = False
        self.context = contextvars.copy_context()
        self.context.run(OWNER.set, self)
        self._remains: list[asyncio.Task[Any]] = []
        self._held: list[asyncio.Handle] = []

    def start(self, main: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `main` as a part of this process."""
        return asyncio.get_running_loop().create_task(main, context=self.context.copy())

    def pause(self) -> None:
        self.paused = True
        self.runs = False

    def resume(self) -> None:
        self.paused = False
        self.runs = not self.dead
        held, self._held = self._held, []
        due = [handle for handle in held if not handle.cancelled()]
        ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]  # as it was
        ready.extendleft(reversed(due))  # before what has become due in this moment: a process keeps its order

    def kill(self) -> None:
        self.dead = True
        self.runs = False
        self._held.clear()
        self._remains = [task for task in asyncio.all_tasks() if getattr(task, "process", None) is self]
        for task in self._remains:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # nobody is to wonder about it
            asyncio.tasks._unregister_task(task)

    def let_go(self) -> None:
        """Drops the references to its tasks after a kill, so that they can be collected."""
        self._remains.clear()

    # --- what the loop asks -----------------------------------------------------------------------------------------

    def hold(self, handle: asyncio.Handle) -> None:
        """This callback is due, and the process does not run."""
        if not self.dead:
            self._held.append(handle)
