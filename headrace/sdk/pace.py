"""A rate limit in messages per second, as arithmetic: the caller passes the time.

A token bucket that holds a tenth of a second's worth of messages, but at least one. Invariant: in any T seconds at most
rate * T messages plus one full bucket pass.
"""

from __future__ import annotations

from headrace.sdk.errors import BadSetting

_HOLDS_S = 0.1


class Pace:
    def __init__(self, messages_per_s: float) -> None:
        if messages_per_s <= 0:
            raise BadSetting(f"rate_limit={messages_per_s:g} would block every message: give a rate above 0")
        self._rate = messages_per_s
        self._capacity = max(1.0, messages_per_s * _HOLDS_S)
        self._level = self._capacity
        self._filled_at: float | None = None

    def permits(self, now_s: float) -> int:
        """How many messages may pass now."""
        self._fill(now_s)
        return int(self._level)

    def spend(self, count: int, now_s: float) -> None:
        self._fill(now_s)
        self._level -= count

    def wait_s(self, now_s: float) -> float:
        """Seconds until one message may pass."""
        self._fill(now_s)
        return max(0.0, (1.0 - self._level) / self._rate)

    def _fill(self, now_s: float) -> None:
        if self._filled_at is not None:
            gained = (now_s - self._filled_at) * self._rate
            self._level = min(self._capacity, self._level + gained)
        self._filled_at = now_s
