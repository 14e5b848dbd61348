"""`python -m sim.history FILE...`: the verdict on recorded histories. Exits with 1 if an invariant is broken.

Several files are treated as one history, recorded by several processes on one machine.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from sim.history.event import BadHistory, merge, parse_all
from sim.history.verdict import judge


def main(paths: Sequence[str]) -> int:
    if not paths:
        sys.stderr.write("usage: python -m sim.history FILE...\n")
        return 2
    try:
        with ExitStack() as files:
            verdict = judge(merge(parse_all(files.enter_context(Path(path).open())) for path in paths))
    except (BadHistory, OSError) as error:
        sys.stderr.write(f"no verdict: {error}\n")
        return 2
    sys.stdout.write(f"{verdict}\n")
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    gc.disable()  # everything is kept until the end: collecting garbage among millions of events is wasted work
    sys.exit(main(sys.argv[1:]))
