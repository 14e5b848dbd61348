"""The sizes of the section "delays". Pure data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DelaySizes:
    pending: int = 1_000_000
    burst: int = 500_000
    steady_rate: int = 10_000
    steady_seconds: int = 20
    load_seconds: float = 240.0  # in which a system must have taken what is pending
    pairs: int = 7
    produced: int = 3_000_000  # in each run of a pair


QUICK_DELAYS = DelaySizes(
    pending=20_000, burst=10_000, steady_rate=2_000, steady_seconds=3, load_seconds=60.0, pairs=2, produced=300_000
)
