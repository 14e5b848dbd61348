"""The compatibility run: `python -m tests.clients.foreign`, or `make test-clients`.

Starts one broker, lets every client tell its stories to it, and writes docs/compatibility.md. What a client needs is
installed where that is possible (Debian's packages, Maven, the Go module proxy) and otherwise named in one line. Ends
with an error if any story failed.

`HEADRACE_BOOTSTRAP=host:port` talks to another broker instead, and `--only NAME` to some clients alone; both print the
table and leave the page as it is. Beside the clients there are parts without a column in the table, see parts.py: Spark
both ways, and MirrorMaker.
"""

import argparse
import datetime
import os
import sys
import tempfile
import time
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path

from tests.clients.broker_process import BrokerProcess, headrace_broker
from tests.clients.compatibility import Column, column, not_run, render
from tests.clients.parts import PARTS
from tests.clients.parts import tell as tell_part
from tests.clients.shell import Stage
from tests.clients.suites import ROOT, SUITES, Suite, say

PAGE = ROOT / "docs" / "compatibility.md"


def tell(suite: Suite, stage: Stage) -> Column:
    missing = suite.missing()
    if missing:
        say(f"{suite.name}: not run: {missing}")
        return not_run(suite.name, missing)
    say(f"{suite.name} {suite.version()}")
    began = time.monotonic()
    made = column(suite.name, suite.version(), suite.tell(stage), suite.not_offered, suite.not_asked)
    say(f"{suite.name}: {len(made.failures)} failures in {time.monotonic() - began:.0f} s")
    return made


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.clients.foreign", description="Which clients work with headrace?"
    )
    names = [suite.name for suite in SUITES] + [part.name for part in PARTS]
    parser.add_argument("--only", action="append", choices=names, help="one client or part; may be repeated")
    wanted = parser.parse_args().only or names
    elsewhere = os.environ.get("HEADRACE_BOOTSTRAP")
    with tempfile.TemporaryDirectory(prefix="headrace-clients-") as folder:
        started = (
            nullcontext(BrokerProcess(elsewhere, Path(os.devnull))) if elsewhere else headrace_broker(Path(folder))
        )
        with started as broker:
            stage = Stage(broker.bootstrap, Path(folder))
            columns = [tell(suite, stage) for suite in SUITES if suite.name in wanted]
            failures = [failure for made in columns for failure in made.failures]
            for part in PARTS:
                if part.name in wanted:
                    failures += [f"{part.name}: {why}" for why in tell_part(part, stage)]
            if failures:
                say(f"The end of the broker's log:\n{broker.log_tail(limit=4_000)}")
    name = f"the broker at {elsewhere}" if elsewhere else f"headrace {version('headrace')}"
    page = render(columns, name, datetime.datetime.now(tz=datetime.UTC).date().isoformat())
    if elsewhere or wanted != names:
        say(page)
    else:
        PAGE.write_text(page)
        say(f"wrote {PAGE.relative_to(ROOT)}")
    for failure in failures:
        say(f"FAILED {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
