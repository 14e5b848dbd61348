"""The clock in the hand of a test: pushed forward from the test's thread, moved on the broker's.

Made by local_broker.py, reached as `broker.clock`. Invariant: `advance` returns only when everything that fell due
on the way has been done: retention has removed its files, silent members have left their groups.
"""

from __future__ import annotations

from collections.abc import Callable


class BrokerClock:
    def __init__(self, push: Callable[[float], None], now_ms: Callable[[], int]) -> None:
        self._push = push
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """The broker's wall time in milliseconds since the epoch."""
        return self._now_ms()

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, milliseconds: float = 0
    ) -> None:
        """Let this much time pass for the broker, at once.

        It is one jump: a timer that fell due fires once, however often it would have fired on the way, and what it
        starts counts from the new time. Clients keep their own time; the broker sees them as silent for that long.
        """
        total_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds + milliseconds / 1000
        if total_s < 0:
            raise ValueError(f"time only goes forward, and this is {total_s:g} s")
        self._push(total_s)
