"""Brokers of a cluster as local processes, for `headrace up` and for tests.

Owns the processes, their data folders and their logs; each broker keeps its port over restarts, so that clients can
reconnect. A broker is ready when its log says so.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from shutil import which

from headrace.cli.local_zookeeper import HOST
from headrace.model.failure import Failure

READY_S = 60.0
_STOP_S = 30.0
_READY = b"headrace is ready"


class BrokerProcess:
    """Call `start`, then `wait_until_ready`, and `stop` at the end; may be repeated. `kill` and `pause` are for
    tests."""

    def __init__(
        self, folder: Path, number: int, zookeeper: str, port: int, options: Sequence[str] = (), host: str = HOST
    ) -> None:
        """`options` are further options of `headrace serve`."""
        self.number = number
        self.host = host
        self.port = port
        self.data = folder / f"broker-{number}"
        self.log = folder / f"broker-{number}.log"
        self._zookeeper = zookeeper
        self._options = list(options)
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def command(self) -> list[str]:
        """The command line of the process."""
        alone = [_headrace(), "serve", "--data", str(self.data), "--listen", self.address]
        return [*alone, "--zookeeper", self._zookeeper, "--broker-id", str(self.number), *self._options]

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            # In its own session: Ctrl-C reaches only `headrace up`, which then stops the processes in order.
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def wait_until_ready(self) -> None:
        """Raise a Failure with the last line of its log if the broker ends or takes too long."""
        deadline = time.monotonic() + READY_S
        while _READY not in (said := self.said()).encode():
            if self._process is None or self._process.poll() is not None:
                raise Failure(f"broker {self.number} did not start: {_last_line(said)}; its log is {self.log}")
            if time.monotonic() > deadline:
                raise Failure(f"broker {self.number} is not ready after {READY_S:g} s; its log is {self.log}")
            time.sleep(0.02)

    def said(self) -> str:
        """Its log since the last start."""
        return self.log.read_bytes()[self._log_start :].decode(errors="replace") if self.log.exists() else ""

    def ended(self) -> int | None:
        """The exit status, if the process has ended by itself."""
        return None if self._process is None else self._process.poll()

    def stop(self) -> int | None:
        """Stop cleanly; returns the exit status."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def pause(self, paused: bool) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP if paused else signal.SIGCONT)

    def _end(self, how: signal.Signals) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        process.send_signal(how)
        process.send_signal(signal.SIGCONT)
        try:
            return process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _headrace() -> str:
    """The path of the `headrace` command in this environment."""
    beside = Path(sys.executable).with_name("headrace")
    found = str(beside) if beside.exists() else which("headrace")
    if found is None:
        raise Failure("the command `headrace` is not on the PATH: install the package, then try again")
    return found


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "its log is empty"
