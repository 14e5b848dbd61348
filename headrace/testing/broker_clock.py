"""The broker's clock under the control of a test: advanced from the test's thread, applied on the broker's.

Made by local_broker.py, available as `broker.clock`. Invariant: `advance` returns only when everything that became due
is done: retention has removed its files, members past their session timeout have left their groups.
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
        """Advance the broker's clock by this much, at once.

        It is one jump: a periodic timer fires once, however often it would have fired meanwhile, and timers started by
        it count from the new time. Clients keep their own time; to the broker they were silent for that long.
        """
        total_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds + milliseconds / 1000
        if total_s < 0:
            raise ValueError(f"the clock cannot go back, and this is {total_s:g} s: give a positive time")
        self._push(total_s)
