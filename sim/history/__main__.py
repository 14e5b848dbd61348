"""`python -m sim.history FILE...`: the verdict on recorded histories. Ends with 1 if an invariant is broken.

Several files are taken as one history that several processes of one machine recorded.
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
    gc.disable()  # everything is kept to the end: looking for garbage among millions of events is idle work
    sys.exit(main(sys.argv[1:]))
