"""Time and CPU used by Spark's JVM and its Python workers, which are all descendants of this process.

The CPU of an ended process is added to the parent that waits for it. Spark's daemons do not wait for their workers, so
the last seen CPU of each worker is kept here; otherwise it would be missing once Spark ends the worker.
"""

from __future__ import annotations

import os
import time

import psutil

_DAEMON = "pyspark.daemon"


class Used:
    """Counts from when it is made."""

    def __init__(self) -> None:
        self._began_s, self._cpu_s = time.monotonic(), _ledger.cpu_seconds()

    def seconds(self) -> float:
        return time.monotonic() - self._began_s

    def cpu_seconds(self) -> float:
        return _ledger.cpu_seconds() - self._cpu_s


class Ledger:
    """The CPU of all processes of Spark so far, including ended ones."""

    def __init__(self) -> None:
        self._workers_s: dict[int, float] = {}  # of daemons, when last seen
        self._ended_workers_s = 0.0

    def cpu_seconds(self) -> float:
        """Total CPU seconds, without the broker; this process only waits."""
        while True:
            try:
                return self._walk()
            except psutil.NoSuchProcess:  # it ended meanwhile, and its CPU belongs to another that was read before it
                continue

    def _walk(self) -> float:
        daemons: set[int] = set()
        workers_s: dict[int, float] = {}
        used = 0.0
        for process in psutil.Process(os.getpid()).children(recursive=True):  # parents come before their children
            command = _command(process)
            if "serve" in command:
                continue
            cpu_s = sum(process.cpu_times()[:4])
            used += cpu_s
            if process.ppid() in daemons:
                workers_s[process.pid] = cpu_s
            elif _DAEMON in command:
                daemons.add(process.pid)
        self._ended_workers_s += sum(last for pid, last in self._workers_s.items() if pid not in workers_s)
        self._workers_s = workers_s
        return used + self._ended_workers_s


def _command(process: psutil.Process) -> list[str]:
    """Empty for one that has ended and is not waited for yet: its CPU is still there to be read."""
    try:
        return list(process.cmdline())
    except psutil.ZombieProcess:
        return []


_ledger = Ledger()
