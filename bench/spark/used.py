"""Time and CPU since a moment: of Spark's JVM and its Python workers, which are all children of this process."""

from __future__ import annotations

import os
import time

import psutil


class Used:
    """Counts from when it is made."""

    def __init__(self) -> None:
        self._began_s, self._cpu_s = time.monotonic(), _cpu_seconds()

    def seconds(self) -> float:
        return time.monotonic() - self._began_s

    def cpu_seconds(self) -> float:
        return _cpu_seconds() - self._cpu_s


def _cpu_seconds() -> float:
    """Those that ended included, the broker not; this process only waits."""
    used = 0.0
    for process in psutil.Process(os.getpid()).children(recursive=True):
        try:
            if "serve" not in process.cmdline():
                used += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return used
