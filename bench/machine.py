"""Describes the machine of a measurement, because figures depend on it."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def describe() -> str:
    """CPU model, cores, memory and kernel in one line."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    return f"{_cpu_model()}, {cores()} cores, {memory_gib:.0f} GiB memory, Linux {platform.release()}"


def cores() -> int:
    return len(os.sched_getaffinity(0))


def load_average() -> float:
    """The load average of the last minute: above zero before a run, other programs disturb it."""
    return os.getloadavg()[0]


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
