"""Busy polling: how long the event loop polls for the next request before it sleeps.

With a client that sends one small request at a time, the broker would sleep between two requests, and waking it takes
the kernel longer than all work for the request: half of the round trip on a virtual machine. So after such a reply the
loop polls for a moment, as long as that helps and harms no other process:

- Between two polls it yields the CPU: another process may be waiting for it, perhaps the very client whose request is
  expected and which otherwise could not send it until the polling ends.
- After a watch (one period of polling) without a request, the next 1, then 3, then 7, up to 63 replies start none.
- If much time passed between two polls, the kernel gave the CPU to others. A process that polls has used up its time
  slice when a request arrives, and then waits longest. So polling pauses, first for a hundredth of a second, and up to
  a second if that happens repeatedly.

Owned by the listener, whose turns report replies. Only for a loop in real time: simulated time does not advance during
polling.
"""

from __future__ import annotations

from collections.abc import Callable

_LOST_S = 0.000_3  # between two polls: another process had the CPU
_REST_S, _LONGEST_REST_S = 0.01, 1.0
_ENOUGH = 100  # successful watches: no other process needs the CPU now
_MOST_PASSED = 63


class Vigil:
    __slots__ = (
        "_call_soon", "_give_way", "_looked_s", "_monotonic", "_paid", "_pass", "_passed_by", "_rest_s",
        "_rests_until_s", "_until_s", "_watch_s", "_watching",
    )  # fmt: skip

    def __init__(
        self,
        watch_s: float,
        monotonic: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], object],
        give_way: Callable[[], None],
    ) -> None:
        self._watch_s = watch_s
        self._monotonic = monotonic
        self._call_soon = call_soon
        self._give_way = give_way
        self._watching = False
        self._until_s = 0.0
        self._looked_s = 0.0
        self._rest_s = _REST_S
        self._rests_until_s = 0.0
        self._paid = 0  # successful watches since the CPU was last lost
        self._pass = 0  # replies after which no watch starts
        self._passed_by = 0  # how many were skipped after the last watch

    def answered(self) -> None:
        """A reply was sent, and the next request may come soon."""
        now_s = self._monotonic()
        if self._watching:
            self._passed_by = 0
            self._paid += 1
            if self._paid == _ENOUGH:
                self._rest_s = _REST_S
        elif self._pass:
            self._pass -= 1
            return
        elif now_s < self._rests_until_s:
            return
        else:
            self._watching = True
            self._call_soon(self._look)
        self._looked_s = now_s
        self._until_s = now_s + self._watch_s

    def _look(self) -> None:
        """Called in every turn of the loop; each turn polls for requests."""
        now_s = self._monotonic()
        if now_s - self._looked_s > _LOST_S:
            self._watching = False
            self._paid = 0
            self._rests_until_s = now_s + self._rest_s
            self._rest_s = min(2 * self._rest_s, _LONGEST_REST_S)
        elif now_s < self._until_s:
            self._looked_s = now_s
            self._give_way()
            self._call_soon(self._look)
        else:
            self._watching = False
            self._pass = self._passed_by = min(2 * self._passed_by + 1, _MOST_PASSED)
