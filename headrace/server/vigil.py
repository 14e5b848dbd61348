"""How long the event loop looks for the next request before it sleeps.

A client that sends one small request, waits for the answer and sends the next has the broker fall asleep in between,
and waking it takes the kernel longer than all that the broker does for the request: on a virtual machine half of the
round trip. So after such an answer the loop goes on looking for a moment, as long as that pays and harms nobody:

- Between two looks it gives way to whoever waits for the same processor: that may be the very client whose request it
  looks for, and who would otherwise get to send it only when the watch is over.
- A watch in which nothing comes is not kept again at once, but after 1 answer, then 3, then 7, up to 63.
- Who looks, and finds that much time has passed since the last look, was taken off the processor for others. Who polls
  has used up its share when a request comes, and waits longest then; so it rests, for a hundredth of a second at first
  and for a second when that happens again and again.

Owned by the listener, whose turns tell of answers. Only for a loop on real time: a simulated one stands still while it
looks.
"""

from __future__ import annotations

from collections.abc import Callable

_LOST_S = 0.000_3  # between two looks: somebody else was on the processor
_REST_S, _LONGEST_REST_S = 0.01, 1.0
_ENOUGH = 100  # watches that paid: nobody else wants the processor now
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
        self._paid = 0  # watches, since the processor was last lost
        self._pass = 0  # answers to let go by
        self._passed_by = 0  # after the last watch

    def answered(self) -> None:
        """The next request may come in a moment."""
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
        """Called in every turn of the loop, each of which looks for requests."""
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
