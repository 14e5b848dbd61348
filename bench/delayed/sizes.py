"""The sizes of the section "delays". Pure data."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class DelaySizes:
    pending: int = 1_000_000
    burst: int = 500_000
    steady_rate: int = 10_000
    steady_seconds: int = 20
    load_seconds: float = 240.0  # in which a system must have taken what is pending
    pairs: int = 7
    produced: int = 3_000_000  # in each run of a pair
    headrace_only: bool = False  # no peers, no pairs: for numbers of pending messages that take long to load


def with_pending(sizes: DelaySizes, pending: int) -> DelaySizes:
    """Another number of pending messages, with as much time as it needs, on headrace alone."""
    return replace(sizes, pending=pending, load_seconds=max(sizes.load_seconds, pending / 10_000), headrace_only=True)


QUICK_DELAYS = DelaySizes(
    pending=20_000, burst=10_000, steady_rate=2_000, steady_seconds=3, load_seconds=60.0, pairs=2, produced=300_000
)
