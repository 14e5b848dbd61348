"""An event loop with virtual time.

A simulation runs here: as long as callbacks are ready they run in order, and when none is, time jumps to the next
timer. A day of waiting takes only as long as the work done in it, and one seed gives one history: timers that are due
at the same time fire in the order they were set, and blocking work (`run_in_executor`) runs on the loop itself, after a
delay drawn from the seed. So the order of events depends on the seed alone.

There is no selector, no socket and no thread; the simulator has its own network and disk. Called by simulation tests
through `run`. Invariant: time never goes back, and no callback runs before its time.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, TypeVar, cast

from headrace.world.clock import Timer
from sim.process import OWNER, Process

T = TypeVar("T")

DAY_S = 86_400.0
START_MS = 1_767_225_600_000  # the wall clock of every simulation starts at 2026-01-01T00:00:00Z
SLOWEST_WORK_S = 0.005


class Deadlock(Exception):
    """All tasks wait, and no timer will ever wake them."""


class Overtime(Exception):
    """The simulation exceeded its time limit: a timer repeats while the story waits for something that never
    happens."""


class SimTask(asyncio.Task[T]):
    """A task with a sequential number as its hash, so that the order of sets is deterministic; the usual hash is a
    memory address."""

    _number: int | None = None
    process: Process | None = None  # that it belongs to

    def __hash__(self) -> int:
        if self._number is None:
            self._number = next(cast("SimLoop", self.get_loop()).order)
        return self._number


class SimFuture(asyncio.Future[T]):
    """The same for a future."""

    _number: int | None = None

    def __hash__(self) -> int:
        if self._number is None:
            self._number = next(cast("SimLoop", self.get_loop()).order)
        return self._number


class SimHandle(asyncio.Handle):
    """A callback. Made a hundred thousand times in a story, so it takes no more than it needs."""

    __slots__ = ()
    _context: Context

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], loop: SimLoop, context: Context | None):
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class SimTimer(asyncio.TimerHandle):
    """The same, for later."""

    __slots__ = ()
    _context: Context

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: SimLoop,
        context: Context | None,
    ):
        self._when = when
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._scheduled = False  # asyncio counts cancelled timers; here they are dropped when they become due


class SimLoop(asyncio.BaseEventLoop):
    """asyncio's own loop, with another selection of the next callback: it never waits, and checks processes first."""

    _ready: deque[SimHandle | SimTimer]
    _scheduled: list[tuple[float, int, SimTimer]]  # a heap; timers of the same time in the order of their creation
    _stopping: bool
    _closed: bool

    def __init__(self, seed: int, limit_s: float = 30 * DAY_S) -> None:
        super().__init__()
        self._now_s = 0.0
        self._limit_s = limit_s
        self.order = itertools.count()
        self._random = random.Random(seed)

    def time(self) -> float:
        return self._now_s

    # --- callbacks --------------------------------------------------------------------------------------------------

    def call_soon(  # type: ignore[override]  # the arguments' types are the callback's affair
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimHandle:
        if self._closed:
            raise RuntimeError("the simulation is over")  # calls of killed tasks are ignored
        handle = SimHandle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]  # the same
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimTimer:
        if self._closed:
            raise RuntimeError("the simulation is over")
        timer = SimTimer(when, callback, args, self, context)
        heapq.heappush(self._scheduled, (when, next(self.order), timer))
        return timer

    def call_later(  # type: ignore[override]  # the same
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimTimer:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """One iteration of the loop: run ready callbacks; if there are none, advance the time."""
        ready, timers = self._ready, self._scheduled
        if not ready and not self._stopping:
            self._jump_to_next_timer()
        while timers and timers[0][0] <= self._now_s:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                process = handle._context.get(OWNER)
                if process is None or process.runs:
                    handle._run()
                else:
                    process.hold(handle)

    def _jump_to_next_timer(self) -> None:
        """Set the time to exactly the next timer: adding differences would drift."""
        timers = self._scheduled
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            raise Deadlock(f"nothing is left to run at {self._now_s:.3f} s; still waiting:\n{self.waiting()}")
        if timers[0][0] > self._limit_s:
            raise Overtime(
                f"the simulation passed {self._limit_s:g} s of virtual time; still waiting:\n{self.waiting()}"
            )
        self._now_s = max(self._now_s, timers[0][0])

    # --- tasks and work ---------------------------------------------------------------------------------------------

    def create_task(  # type: ignore[override]  # as asyncio has it
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        task = SimTask(coro, loop=self, name=name, context=context)
        task.process = OWNER.get() if context is None else context.get(OWNER)
        return task

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

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

    def _write_to_self(self) -> None:
        """asyncio wakes its selector with this; here there is none."""


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
        return self._wall_ms + int(asyncio.get_running_loop().time() * 1000)

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
