"""Stories of a product with one rule of delayed messages switched off: `python -m tests.mutations.stories RULE PLACE
FIRST COUNT` tells them, beginning with seed FIRST, until one fails; 0 if one does. PLACE is that of the mutation among
those of its rule in rules.py.

A process of its own, since a seed is one story only where hashes of strings are fixed.
"""

from __future__ import annotations

import logging
import sys

from sim.story import Plot, tell
from tests.mutations.mutant import mutated
from tests.mutations.rules import CASES

TROUBLE_S = 20.0


def main(rule: int, place: int, first: int, count: int) -> int:
    logging.disable(logging.CRITICAL)
    sys.unraisablehook = lambda unraisable: None  # objects of killed processes raise when they are collected
    case = [case for case in CASES if case.rule == rule][place]
    with mutated(case.mutation):
        for seed in range(first, first + count):
            outcome = tell(seed, Plot(trouble_s=TROUBLE_S, delays=True))
            if not outcome.passed:
                sys.stdout.write(f"{outcome}\n")
                return 0
    sys.stdout.write(f"{count} stories from seed {first} on end well without rule {rule}: {case.mutation}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
