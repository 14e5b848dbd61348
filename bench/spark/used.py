"""Time and CPU since a moment: of Spark's JVM and its Python workers, which are all children of this process.

A process that ends hands its CPU to the one that waits for it. Spark's daemons wait for nobody: what a worker of theirs
had used when it was last seen is kept here, or it would be missing from what is measured when Spark ends the worker.
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
    """The CPU of all processes of Spark so far, those that ended included."""

    def __init__(self) -> None:
        self._workers_s: dict[int, float] = {}  # of daemons, when last seen
        self._ended_workers_s = 0.0

    def cpu_seconds(self) -> float:
        """The broker is not counted; this process only waits."""
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
