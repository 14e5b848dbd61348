"""An event loop whose time is a number.

A simulation runs here: as long as something is ready it runs in order, and when nothing is, time jumps to the next
timer. A day of waiting takes as long as the work that is done in it, and one seed gives one history: timers that fall
due together fire in the order they were set, and blocking work (`run_in_executor`) runs on the loop itself, after a
delay drawn from the seed, so that what overtakes what is decided by the seed and by nothing else.

There is no selector, no socket and no thread; the simulator brings its own network and disk. Called by simulation
tests through `run`. Invariant: time never goes back, and no callback runs before its time.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

from headrace.world.clock import Timer
from sim.process import OWNER

T = TypeVar("T")

DAY_S = 86_400.0
START_MS = 1_767_225_600_000  # the wall clock of every simulation starts at 2026-01-01T00:00:00Z
SLOWEST_WORK_S = 0.005


class Deadlock(Exception):
    """Everything waits and nothing will ever wake it."""


class Overtime(Exception):
    """The simulation outlived its limit: something repeats itself while the story waits for what never comes."""


class SimTask(asyncio.Task[T]):
    """A task whose place in a set depends on when it was made; the usual hash is an address in memory."""

    def __init__(self, number: int, coro: Coroutine[Any, Any, T], **rest: Any) -> None:
        self._number = number  # before the rest: asyncio puts new tasks into a set
        super().__init__(coro, **rest)

    def __hash__(self) -> int:
        return self._number


class SimFuture(asyncio.Future[T]):
    """The same for a future."""

    def __init__(self, number: int, loop: SimLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class SimHandle(asyncio.Handle):
    """A callback that asks its process first."""

    __slots__ = ()
    _context: Context

    def _run(self) -> None:
        owner = self._context.get(OWNER)
        if owner is None or not owner.holds(self):
            super()._run()


class SimTimer(asyncio.TimerHandle):
    """A timer that, among equals, fires in the order of its making; asyncio alone leaves that order to its heap."""

    __slots__ = ("_order",)
    _context: Context

    def ordered(self, order: int) -> SimTimer:
        self._order = order
        self._scheduled = True  # asyncio counts cancelled timers among the scheduled ones
        return self

    def _run(self) -> None:
        owner = self._context.get(OWNER)
        if owner is None or not owner.holds(self):
            super()._run()

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, SimTimer):
            return NotImplemented
        return (self.when(), self._order) < (other.when(), other._order)


class _TimeJump:
    """Stands where asyncio expects a selector: instead of waiting for IO, it moves the time."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Deadlock(
                f"nothing is left to run at {self._loop.time():.3f} s; still waiting:\n{self._loop.waiting()}"
            )
        if timeout > 0:
            self._loop.jump_to_next_timer()
        return []

    def close(self) -> None:
        pass


class SimLoop(asyncio.BaseEventLoop):
    """asyncio's own loop, with `_TimeJump` in the place of the selector."""

    _scheduled: list[SimTimer]
    _ready: deque[asyncio.Handle]

    def __init__(self, seed: int, limit_s: float = 30 * DAY_S) -> None:
        super().__init__()
        self._selector = _TimeJump(self)
        self._now_s = 0.0
        self._limit_s = limit_s
        self._order = itertools.count()
        self._random = random.Random(seed)

    def time(self) -> float:
        return self._now_s

    def call_at(  # type: ignore[override]  # the arguments' types are the callback's affair
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimTimer:
        timer = SimTimer(when, callback, args, self, context).ordered(next(self._order))
        heapq.heappush(self._scheduled, timer)
        return timer

    def _call_soon(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None) -> SimHandle:
        handle = SimHandle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def create_task(  # type: ignore[override]  # as asyncio has it
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        task = SimTask(next(self._order), coro, loop=self, name=name, context=context)
        owner = OWNER.get() if context is None else context.get(OWNER)
        if owner is not None:
            owner.has(task)
        return task

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(next(self._order), self)

    def jump_to_next_timer(self) -> None:
        """Move the time to exactly the next timer: adding up differences would drift away from it."""
        due_s = self._scheduled[0].when()
        if due_s > self._limit_s:
            raise Overtime(
                f"the simulation passed {self._limit_s:g} s of virtual time; still waiting:\n{self.waiting()}"
            )
        self._now_s = due_s

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        done: asyncio.Future[T] = self.create_future()
        self.call_later(self._random.uniform(0, SLOWEST_WORK_S), _work, done, func, args)
        return done

    def waiting(self) -> str:
        """Every unfinished task and the line on which it waits."""
        lines = []
        for task in sorted(asyncio.all_tasks(self), key=lambda task: task.get_name()):
            frames = task.get_stack(limit=1)
            place = f"{frames[0].f_code.co_filename}:{frames[0].f_lineno}" if frames else "its start"
            lines.append(f"  {task.get_name()} ({getattr(task.get_coro(), '__qualname__', '?')}) at {place}")
        return "\n".join(lines)

    def _process_events(self, event_list: list[Any]) -> None:
        assert not event_list, "there is no IO here"

    def _write_to_self(self) -> None:
        """asyncio wakes its selector with this; here nothing sleeps."""


def _work(done: asyncio.Future[T], func: Callable[..., T], args: tuple[Any, ...]) -> None:
    if done.cancelled():  # a thread pool drops work that was cancelled before it began
        return
    try:
        result = func(*args)
    except Exception as error:
        done.set_exception(error)
    else:
        done.set_result(result)


class SimClock:
    """The `Clock` of a simulation: waits run on the loop's time, and the wall clock can be set wrong by `jump`."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self._wall_ms = start_ms

    def now_ms(self) -> int:
        return self._wall_ms + int(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        return asyncio.get_running_loop().call_later(delay_s, callback, *args)

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)

    def jump(self, milliseconds: int) -> None:
        """Move the wall clock, forward or back, as a time server or a person does; no wait gets shorter or longer."""
        self._wall_ms += milliseconds


def run(main: Coroutine[Any, Any, T], seed: int, limit_s: float = 30 * DAY_S) -> T:
    """Run `main` to its end in virtual time and return what it returns; an error carries the seed that repeats it."""
    with asyncio.Runner(loop_factory=lambda: SimLoop(seed, limit_s)) as runner:
        try:
            return runner.run(main)
        except Exception as error:
            error.add_note(f"simulation seed {seed}")
            raise
