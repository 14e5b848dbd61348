"""Time. The only module that reads a clock.

Everything that waits or needs a timestamp is given a `Clock`. `SystemClock` is real time on the running event loop;
`AdvanceableClock` is real time plus an offset that a test advances, which fires the timers that become due; the
simulator has a third one on a virtual loop.

Wall time (`now_ms`) may jump, so it is used for timestamps only; every wait uses monotonic time.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Any, Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time in milliseconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean something."""
        ...

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Call `callback(*args)` on the event loop once `delay_s` have passed."""
        ...

    async def sleep(self, delay_s: float) -> None: ...


class SystemClock:
    """Real time."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)  # called several times for every request

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        return asyncio.get_running_loop().call_later(delay_s, callback, *args)

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)

    def pause(self, delay_s: float) -> None:
        """Block this thread: for blocking programs, never on an event loop."""
        time.sleep(delay_s)


class _Deadline:
    __slots__ = ("args", "callback", "cancelled")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.callback = callback
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class AdvanceableClock:
    """Real time that a test can advance: `advance` moves both clocks and fires every timer that becomes due.

    Timers are kept here rather than on the loop, because the loop's own time cannot be moved. All methods run on the
    event loop's thread.
    """

    def __init__(self) -> None:
        self._shift_s = 0.0
        self._timers: list[tuple[float, int, _Deadline]] = []
        self._order = itertools.count()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + int(self._shift_s * 1000)

    def monotonic(self) -> float:
        return time.monotonic() + self._shift_s

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        deadline = _Deadline(callback, args)
        heapq.heappush(self._timers, (self.monotonic() + delay_s, next(self._order), deadline))
        self._set_alarm()
        return deadline

    async def sleep(self, delay_s: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(delay_s, _wake, woken)
        try:
            await woken
        finally:
            timer.cancel()

    def advance(self, seconds: float) -> None:
        """Jump forward; timers due by then fire once each, in the order of their deadlines."""
        self._shift_s += seconds
        self._fire()

    def _fire(self) -> None:
        self._alarm = None
        now = self.monotonic()
        while self._timers and self._timers[0][0] <= now:
            deadline = heapq.heappop(self._timers)[2]
            if not deadline.cancelled:
                asyncio.get_running_loop().call_soon(deadline.callback, *deadline.args)
        self._set_alarm()

    def _set_alarm(self) -> None:
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        if not self._timers:
            return
        due = self._timers[0][0] - self._shift_s
        if self._alarm is not None:
            if self._alarm_at <= due:
                return
            self._alarm.cancel()
        self._alarm_at = due
        self._alarm = asyncio.get_running_loop().call_later(max(0.0, due - time.monotonic()), self._fire)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
