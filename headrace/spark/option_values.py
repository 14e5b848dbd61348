"""Parsers of option values, which Spark passes as text; an invalid value raises a one-line Failure.

Called by the options of the source and of the sink. Pure. Every function takes the option's name for its error message.
"""

from __future__ import annotations

import re

from headrace.model.failure import Failure

_UNITS_MS = {
    "ms": 1, "millisecond": 1, "milliseconds": 1,
    "s": 1000, "sec": 1000, "second": 1000, "seconds": 1000,
    "m": 60_000, "min": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip
_DURATION = re.compile(r"(\d+)\s*([a-z]*)")


def boolean(name: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise Failure(f"option {name} is {text!r}: write true or false")
    return text.strip().lower() == "true"


def whole_number(name: str, text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise Failure(f"option {name} is {text!r}: write a whole number, at least {least}")
    return value


def duration_ms(name: str, text: str) -> int:
    """`15m`, `10 seconds`, `500ms`; a number without a unit is in milliseconds."""
    found = _DURATION.fullmatch(text.strip().lower())
    unit = found and (_UNITS_MS.get(found[2] or "ms"))
    if not found or not unit:
        raise Failure(f"option {name} is {text!r}: write a duration, such as 15m, 10s or 500ms")
    return int(found[1]) * unit


def names(name: str, text: str) -> tuple[str, ...]:
    """Names separated by commas."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise Failure(f"option {name} is {text!r}: write one name, or several separated by commas")
    return found
