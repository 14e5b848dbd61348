"""Parses times that users type, and formats times and durations for them.

Called by every command that takes a time. Invariant: a moment is in epoch milliseconds and never negative; a time
without a time zone is local time.
"""

import re
import time
from datetime import datetime

import typer

UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
SPAN = re.compile(r"(?:\d+(?:ms|[smhdw]))+")
SPAN_PART = re.compile(r"(\d+)(ms|[smhdw])")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def parse_moment(text: str, now: int) -> int:
    """ISO 8601, epoch milliseconds, `now`, or a duration before or after now such as -2h, -1d12h or +90s."""
    moment = read_moment(text.strip(), now)
    if moment is None or moment < 0:
        raise typer.BadParameter(
            f"{text!r} is not a time: write 2025-01-31T12:00:00Z, epoch milliseconds, or a duration before or after "
            "now: -2h, +2h"
        )
    return moment


def parse_span(text: str) -> int:
    """A duration such as 10m, 1d12h or 250ms, in milliseconds."""
    if not SPAN.fullmatch(text.strip()):
        raise typer.BadParameter(f"{text!r} is not a duration: write 90s, 10m or 1d12h (ms, s, m, h, d, w)")
    return span_ms(text)


def read_moment(text: str, now: int) -> int | None:
    if text == "now":
        return now
    if text.isdecimal():
        return int(text)
    if text.startswith(("-", "+")) and SPAN.fullmatch(text[1:]):
        return now - span_ms(text) if text.startswith("-") else now + span_ms(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def span_ms(text: str) -> int:
    return sum(int(count) * UNIT_MS[unit] for count, unit in SPAN_PART.findall(text))


def describe_moment(moment_ms: int) -> str:
    """A moment for a table: local time with milliseconds; Kafka's -1 means no time."""
    if moment_ms < 0:
        return "-"
    try:
        return datetime.fromtimestamp(moment_ms / 1000).astimezone().isoformat(timespec="milliseconds")
    except (ValueError, OverflowError):
        return str(moment_ms)


def describe_span(seconds: float) -> str:
    """A duration for a table: the two largest units, such as 3d 4h or 12s."""
    if seconds < 1:
        return "0s" if seconds <= 0 else "<1s"
    rest = int(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
        elif parts:
            break
    return " ".join(parts[:2])
