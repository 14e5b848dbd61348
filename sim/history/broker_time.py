"""The broker's time of an event, as far as a history knows it, for the checks of delayed messages.

`clock` events say what the time is, by how much a broker's clock was set wrong, and when all brokers were started again
with right clocks (`right`). Without one, the time is that of
the history's own clock: durations can be judged, and points in time cannot. Invariant: a broker that looked at its
clock before the end of an event saw no time after `latest` of that event.
"""

from __future__ import annotations

from bisect import bisect_right

from sim.history.operations import NEVER, Operations


class BrokerTime:
    def __init__(self, ops: Operations, error_ms: int) -> None:
        told = ops.told.get("clock", ())
        self.known = bool(told)
        self.error_ms = error_ms
        offs: list[int] = [0, *((event.details or {}).get("off_ms", 0) for event in told)]
        self.low_ms, self.high_ms = min(offs), max(offs)  # a leader counts from the time when it took office
        rights = [event.n for event in told if (event.details or {}).get("right")]
        self._right = rights[-1] if rights else NEVER
        set_at = [event for event in told if "wall_ms" in (event.details or {})]
        self._since_ns = [event.t_mono_ns for event in set_at]
        self._walls_ms: list[int] = [(event.details or {})["wall_ms"] for event in set_at]
        self._times_ns: dict[int, int] = {event.n: event.t_mono_ns for event in ops.events}

    @property
    def spread_ms(self) -> int:
        """By how much the clocks of two leaders may differ."""
        return self.high_ms - self.low_ms

    def elapsed_ms(self, n: int, until: int) -> float:
        return (self._times_ns[until] - self._times_ns[n]) / 1e6

    def at(self, n: int) -> float:
        """The right time of an event, in ms."""
        if n == NEVER:
            return float("inf")
        return self._at_ns(self._times_ns[n])

    def _at_ns(self, at_ns: int) -> float:
        place = bisect_right(self._since_ns, at_ns) - 1
        if place < 0:
            return at_ns / 1e6
        return self._walls_ms[place] + (at_ns - self._since_ns[place]) / 1e6

    def latest(self, n: int) -> float:
        return self.at(n) + self.error_ms + (self.high_ms if n < self._right else 0)

    def reached(self, due_ms: float) -> float:
        """The right time at which every broker's clock has reached this one."""
        slowest_ms = due_ms - self.low_ms
        return slowest_ms if self._right == NEVER else min(slowest_ms, max(due_ms, self.at(self._right)))
