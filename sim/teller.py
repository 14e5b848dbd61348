"""Runs one story in its own process, and returns the outcome in a form that can be sent between processes.

Called by `python -m sim` in its workers. Invariant: it always ends, with an outcome or with a failure that says why.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
from typing import NamedTuple

from sim.story import Plot, tell

SLOWEST_S = 300  # real time: a story that takes longer is in an endless loop


class Told(NamedTuple):
    seed: int
    passed: bool
    digest: str
    words: str
    faults: dict[str, int]
    seconds: float


def tell_briefly(seed: int, plot: Plot) -> Told:
    logging.disable(logging.CRITICAL)
    sys.unraisablehook = lambda unraisable: None  # objects of killed processes raise when they are collected
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(SLOWEST_S)
    start = time.process_time()
    try:
        outcome = tell(seed, plot)
    except Exception as error:
        return Told(seed, False, "", f"seed {seed}: FAILED\n  {error!r}", {}, time.process_time() - start)
    finally:
        signal.alarm(0)
    return Told(seed, outcome.passed, outcome.digest, str(outcome), outcome.faults, time.process_time() - start)


def _too_long(signal_number: int, frame: object) -> None:
    raise TimeoutError(f"the story took more than {SLOWEST_S} s of real time")
