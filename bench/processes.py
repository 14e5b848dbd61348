"""Child processes of the bench: started in their own session, measured and ended by pid.

Owns every broker and generator process. Invariant: all children have ended when the `with` block of `Children` is left,
also after Ctrl-C and also if a child was stopped with SIGSTOP. A child has its own session, so that Ctrl-C reaches only
the bench, which then ends the children in order. It may write bytecode files, as on a user's machine: otherwise each
start would compile all of headrace.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

STOP_SECONDS = 30.0


class Children:
    """The processes that one run of the bench started."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Children:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in list(self._running):
            self.stop(process, seconds=2.0)

    def start(
        self, command: Sequence[str], *, log: Path | None = None, piped: bool = False, cwd: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a child whose output goes to the log file, or with `piped` to the caller."""
        pipe = subprocess.PIPE if piped else None
        with contextlib.ExitStack() as stack:
            sink = stack.enter_context(log.open("ab")) if log else subprocess.DEVNULL
            process = subprocess.Popen(
                list(command),
                stdin=pipe or subprocess.DEVNULL,
                stdout=pipe or sink,
                stderr=pipe or (subprocess.STDOUT if log else subprocess.DEVNULL),
                start_new_session=True,
                cwd=cwd,
                env=_environment(),
            )
        self._running.append(process)
        return process

    def run(self, command: Sequence[str], *, seconds: float, cwd: Path | None = None) -> Finished:
        """Run a child to its end; returns its output and CPU time."""
        before = _children_cpu_seconds()
        process = self.start(command, piped=True, cwd=cwd)
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.stop(process, seconds=1.0)
            raise TimeoutError(f"{Path(command[0]).name} did not finish within {seconds:.0f} s") from None
        except BaseException:
            self.stop(process, seconds=1.0)
            raise
        self._running.remove(process)
        return Finished(process.returncode, out.decode(), err.decode(), _children_cpu_seconds() - before)

    def stop(self, process: subprocess.Popen[bytes], *, seconds: float = STOP_SECONDS) -> bool:
        """End one child, with SIGTERM first; True if it ended within the time."""
        polite = True
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)  # a stopped process cannot act on SIGTERM
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            polite = False
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                pipe.close()
        if process in self._running:
            self._running.remove(process)
        return polite


class Finished:
    """How a child ended."""

    def __init__(self, code: int, out: str, err: str, cpu_seconds: float) -> None:
        self.code, self.out, self.err, self.cpu_seconds = code, out, err, cpu_seconds

    def reason(self) -> str:
        """The last line that the child printed, for a message to a person."""
        lines = [line for line in (self.err + "\n" + self.out).splitlines() if line.strip()]
        return lines[-1].strip() if lines else f"it ended with status {self.code} and printed nothing"


def cpu_seconds(pid: int) -> float:
    """CPU time of a process with all its threads, ended ones included, and descendants.

    Linux has a CPU clock for each process, which other processes may read; it counts the same time as utime and stime
    in /proc/PID/stat, but in nanoseconds instead of hundredths of a second.
    """
    total = 0.0
    for one in _family(pid):
        with contextlib.suppress(OSError):
            total += time.clock_gettime((~one << 3) | 2)
    return total


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and its descendants."""
    total = 0
    for one in _family(pid):
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total


def _family(pid: int) -> list[int]:
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # a process may end while it is read
            after_name = stat.read_text(errors="replace").rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(after_name[1])
    family = [pid]
    for member in family:  # grows while it is walked: children, then theirs
        family.extend(child for child, parent in parents.items() if parent == member)
    return family


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _children_cpu_seconds() -> float:
    times = os.times()
    return times.children_user + times.children_system
