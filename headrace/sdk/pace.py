"""A limit on messages a second, as arithmetic: the caller brings the time.

A bucket that fills at the rate and holds a tenth of a second's worth, at least one message. Invariant: in any stretch
of T seconds at most rate * T messages and one bucket full are let through.
"""

from __future__ import annotations

from headrace.sdk.errors import BadSetting

_HOLDS_S = 0.1


class Pace:
    def __init__(self, messages_per_s: float) -> None:
        if messages_per_s <= 0:
            raise BadSetting(f"rate_limit={messages_per_s:g} lets nothing through: give messages a second above 0")
        self._rate = messages_per_s
        self._capacity = max(1.0, messages_per_s * _HOLDS_S)
        self._level = self._capacity
        self._filled_at: float | None = None

    def permits(self, now_s: float) -> int:
        """How many messages may go now."""
        self._fill(now_s)
        return int(self._level)

    def spend(self, count: int, now_s: float) -> None:
        self._fill(now_s)
        self._level -= count

    def wait_s(self, now_s: float) -> float:
        """Seconds until one message may go."""
        self._fill(now_s)
        return max(0.0, (1.0 - self._level) / self._rate)

    def _fill(self, now_s: float) -> None:
        if self._filled_at is not None:
            gained = (now_s - self._filled_at) * self._rate
            self._level = min(self._capacity, self._level + gained)
        self._filled_at = now_s
