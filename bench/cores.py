"""Measures how much two busy programs slow each other down on this machine.

Called by latency.py before every go. The two processors of a virtual machine may be two threads of one core, and the
host may change that at any time: then each runs at little more than half speed beside the other. That affects the
latency of one message at a time, where broker and client work in turn and one of them stays awake.
"""

from __future__ import annotations

import sys

from bench.figures import Samples
from bench.processes import Children

MACHINE = "this machine"
SECONDS = 0.3
_COUNT = f"""
import time
end, count = time.perf_counter() + {SECONDS}, 0
while time.perf_counter() < end:
    count += 1
print(count)
"""


def measure(children: Children, samples: Samples) -> None:
    """The speed of the slower of two busy programs, in per cent of one alone."""
    (alone,), together = _counts(children, 1), _counts(children, 2)
    samples.add("cores.together", MACHINE, min(together) / alone * 100)


def _counts(children: Children, programs: int) -> list[int]:
    started = [children.start([sys.executable, "-c", _COUNT], piped=True) for _ in range(programs)]
    try:
        return [int(program.communicate(timeout=30)[0]) for program in started]
    finally:
        for program in started:
            children.stop(program)
