"""The table of the Spark bench: both formats' medians, their ratio, the goal and whether it was reached.

Pure: read by __main__.py after the last round. A ratio is the median of the rounds' ratios, since the two runs of a
round follow each other, so a disturbance of the machine affects both.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.figures import Samples
from bench.goals import Goal, times_at_least, times_at_most
from bench.report import verdict

OURS, THEIRS = "headrace", "kafka"
HEADINGS = ("", "headrace", "Spark's connector", "ratio", "goal", "")
DECODE_GOAL = Goal("value", at_least=20e6)


@dataclass(frozen=True)
class Line:
    """One work on values of one size, and headrace's goal relative to the tuned connector."""

    work: str
    value_bytes: int
    rate: Goal | None = None
    cpu: Goal | None = None

    @property
    def title(self) -> str:
        return f"{self.work}, {self.value_bytes} B"


_FASTER, _AS_FAST, _NO_MORE_CPU = times_at_least(1.4), times_at_least(1.0), times_at_most(1.0)
LINES = (
    Line("aggregate", 100, _FASTER, times_at_most(0.9)),
    Line("all columns", 100, _FASTER, times_at_most(0.9)),
    Line("stream of values", 100, _AS_FAST, _NO_MORE_CPU),
    Line("stream of all columns", 100, _AS_FAST, _NO_MORE_CPU),
    Line("stream in 20 batches", 100),
    Line("write", 100, times_at_least(1.3)),
    Line("aggregate", 1000, _FASTER, _NO_MORE_CPU),
    Line("all columns", 1000, _FASTER, _NO_MORE_CPU),
    Line("stream of values", 1000, _AS_FAST, _NO_MORE_CPU),
    Line("stream of all columns", 1000, _AS_FAST, _NO_MORE_CPU),
    Line("stream in 20 batches", 1000),
    Line("write", 1000),
)


def rows(samples: Samples, decoded: dict[str, float]) -> list[Sequence[str]]:
    """Decoding alone, then two rows for each work that was measured, then what streams take to start."""
    found: list[Sequence[str]] = [
        (f"decode {what}, 100 B, one core", f"{rate / 1e6:.1f}M rows/s", "", "", ">= 20M rows/s",
         verdict(DECODE_GOAL, rate, None))
        for what, rate in decoded.items()
    ]  # fmt: skip
    for line in LINES:
        found += _pair(samples, f"{line.title}.rate", line.title, "k rows/s", line.rate)
        found += _pair(samples, f"{line.title}.cpu", f"{line.title}: CPU", "µs a row", line.cpu)
    return found + _pair(samples, "start", "start of a stream", "s", None)


def _pair(samples: Samples, key: str, title: str, unit: str, goal: Goal | None) -> list[Sequence[str]]:
    values = samples.as_dict().get(key)
    if values is None:
        return []
    ours, theirs = values[OURS], values[THEIRS]
    ratio = statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))
    sign = "" if goal is None else f">= {goal.at_least:g}x" if goal.at_least is not None else f"<= {goal.at_most:g}x"
    shown = (f"{statistics.median(side):.{0 if unit.startswith('k') else 2}f} {unit}" for side in (ours, theirs))
    return [(title, *shown, f"{ratio:.2f}x", sign, verdict(goal, None, ratio))]


def as_text(table: Sequence[Sequence[str]]) -> str:
    """For a terminal: every column as wide as its widest cell."""
    everything = [HEADINGS, *table]
    widths = [max(len(row[at]) for row in everything) for at in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in everything
    )


def as_markdown(table: Sequence[Sequence[str]]) -> str:
    lines = [HEADINGS, ("---",) * len(HEADINGS), *table]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
