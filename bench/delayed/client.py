"""The client of a system under the section "delays", as a process of its own.

Used by servers.py and section.py. A client is one of the modules `*_client.py`; it is given its task as arguments and
prints one line of JSON at its end. One that reads says first that it is ready, so that nothing is sent before it reads.
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.delayed.work import Batch, Task
from bench.processes import Children

READY_SECONDS = 30.0
MARGIN_SECONDS = 60.0  # beyond its own time limit: start, and what it computes at the end

Result = dict[str, float]


@dataclass(frozen=True)
class Client:
    """How to start the client of one system. `library` is the folder of what this environment lacks."""

    children: Children
    module: str
    address: str
    place: str
    library: Path | None = None

    def ask(self, verb: str, batch: Batch, seconds: float) -> Result:
        done = self.children.run(self._command(verb, batch, seconds), seconds=seconds + MARGIN_SECONDS)
        if done.code != 0:
            raise RuntimeError(f"{verb} {batch.count:,} delayed messages: {done.reason()}")
        return _result(done.out)

    @contextlib.contextmanager
    def reading(self, batch: Batch, seconds: float) -> Iterator[Callable[[], Result]]:
        """The block in which a consumer waits for the batch; the function waits for it to end."""
        process = self.start("read", batch, seconds)
        try:
            assert process.stdout is not None
            ready, _, _ = select.select([process.stdout], [], [], READY_SECONDS)
            if not ready or process.stdout.readline().strip() != b"ready":
                raise RuntimeError(f"a consumer was not ready within {READY_SECONDS:.0f} s: {_reason(process)}")
            yield lambda: _outcome(process, seconds)
        finally:
            self.children.stop(process, seconds=2.0)

    def start(self, verb: str, batch: Batch, seconds: float) -> subprocess.Popen[bytes]:
        return self.children.start(self._command(verb, batch, seconds), piped=True)

    def _command(self, verb: str, batch: Batch, seconds: float) -> list[str]:
        environment = [] if self.library is None else ["env", f"PYTHONPATH={self.library}"]
        task = Task(verb, self.address, self.place, batch, seconds)
        return [*environment, sys.executable, "-m", self.module, *task.arguments()]


def _outcome(process: subprocess.Popen[bytes], seconds: float) -> Result:
    try:
        out, err = process.communicate(timeout=seconds + MARGIN_SECONDS)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"a consumer did not end within {seconds + MARGIN_SECONDS:.0f} s") from None
    if process.returncode != 0:
        raise RuntimeError(f"a consumer failed: {(err.decode().strip().splitlines() or ['it printed nothing'])[-1]}")
    return _result(out.decode())


def _reason(process: subprocess.Popen[bytes]) -> str:
    process.kill()
    _, err = process.communicate()
    return (err.decode().strip().splitlines() or ["it printed nothing"])[-1]


def _result(out: str) -> Result:
    result: Result = json.loads(out.strip().splitlines()[-1])
    return result
