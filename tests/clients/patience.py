"""Bounded waiting, for suites that talk to a broker in another process.

A client learns of the broker's state at its own pace, so tests poll; every such loop ends here, by a deadline that says
what did not happen.
"""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_S = 30.0


def until(what: str, attempt: Callable[[], T], deadline_s: float = DEADLINE_S, pause_s: float = 0.02) -> T:
    """Calls `attempt` until it returns something true, and returns that."""
    give_up_at = time.monotonic() + deadline_s
    while True:
        outcome = attempt()
        if outcome:
            return outcome
        if time.monotonic() > give_up_at:
            raise AssertionError(f"{what}: not so after {deadline_s:g} s; last seen {outcome!r}")
        time.sleep(pause_s)
