"""The time of a leader: wall time when it took office, and from then on the time that has passed.

So a jump of the wall clock neither fires a delayed record early or twice, nor keeps it back; it counts from the next
election or restart on.
"""

from __future__ import annotations

from headrace.world.clock import Clock

_ROUNDING_S = 0.0001


class OfficeClock:
    __slots__ = ("_clock", "_since_ms", "_since_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms = clock.now_ms()
        self._since_s = clock.monotonic()

    def now_ms(self) -> int:
        return self._since_ms + int((self._clock.monotonic() - self._since_s) * 1000)

    def monotonic_at(self, at_ms: int) -> float:
        """When, on the monotonic clock, `now_ms` will have reached this, in spite of rounding."""
        return self._since_s + (at_ms - self._since_ms) / 1000 + _ROUNDING_S
