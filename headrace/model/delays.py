"""Delayed messages: the names of their headers, and what a header's value may be.

Shared by the broker, which decides, and by the SDK and the command line, which refuse a bad value before it is sent.
Pure: the present time is an argument. Invariant: a value that is refused raises ValueError with one clause that names
the header and says what is wrong; no time is ever rounded down, because that would deliver a message too early.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

DELAY_MS_HEADER = "headrace.delay-ms"
DELIVER_AT_HEADER = "headrace.deliver-at"
CRON_HEADER = "headrace.cron"
CRON_TZ_HEADER = "headrace.cron-tz"
CANCEL_HEADER = "headrace.cancel"
CANCEL_KEY_HEADER = "headrace.cancel-key"
MOVE_HEADER = "headrace.move"
SCHEDULED_ID_HEADER = "headrace.scheduled.id"
SCHEDULED_FOR_HEADER = "headrace.scheduled.for"

ENABLE_SETTING = "headrace.delay.enable"
VIEW_PENDING = "headrace.view.pending"
PENDING_SUFFIX = ".pending"  # of the view that clients share

MAX_DELAY_DAYS = 3660  # ten years
MAX_DELAY_MS = MAX_DELAY_DAYS * 86_400_000
MAX_DIGITS = 19  # of a number of 63 bits
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def shows_pending(settings: Mapping[str, str]) -> bool:
    """Whether these are the settings of a view of what is pending."""
    return settings.get(VIEW_PENDING, "").strip().lower() == "true"


def delay_ms(text: str) -> int:
    """The value of headrace.delay-ms."""
    return checked_delay(_number(text, DELAY_MS_HEADER, "milliseconds"))


def checked_delay(value_ms: int) -> int:
    if value_ms < 0:
        raise ValueError(f"{DELAY_MS_HEADER} {value_ms} is negative")
    if value_ms > MAX_DELAY_MS:
        raise ValueError(f"{DELAY_MS_HEADER} {value_ms} is more than {MAX_DELAY_DAYS} days ({MAX_DELAY_MS} ms)")
    return value_ms


def deliver_at_ms(text: str, now_ms: int) -> int:
    """The value of headrace.deliver-at, if it can be seen now that it is not too far away."""
    return checked_due(moment_ms(text), now_ms)


def moment_ms(text: str) -> int:
    """The value of headrace.deliver-at, in epoch milliseconds: written so, or as ISO 8601 with a time zone."""
    if text.removeprefix("-").isdecimal():
        return _number(text, DELIVER_AT_HEADER, "epoch milliseconds")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{DELIVER_AT_HEADER} {_shown(text)} is neither epoch milliseconds nor ISO 8601, such as "
            "2026-12-01T08:00:00Z"
        ) from None
    if moment.tzinfo is None:
        raise ValueError(f"{DELIVER_AT_HEADER} {text} has no time zone: add Z, or an offset such as +01:00")
    due_ms = epoch_ms(moment)
    if due_ms < 0:
        raise ValueError(f"{DELIVER_AT_HEADER} {text} is before 1970")
    return due_ms


def checked_due(due_ms: int, now_ms: int) -> int:
    """A due time may be in the past: the message is then delivered at once."""
    if due_ms < 0:
        raise ValueError(f"{DELIVER_AT_HEADER} {due_ms} is before 1970")
    if due_ms - now_ms > MAX_DELAY_MS:
        raise ValueError(
            f"{DELIVER_AT_HEADER} {due_ms} is more than {MAX_DELAY_DAYS} days from now; is it in epoch milliseconds?"
        )
    return due_ms


def record_id(text: str, header: str) -> int:
    """The id in headrace.cancel or headrace.move: the offset that the delayed record was given."""
    return _number(text, header, "the offset of a delayed record")


def epoch_ms(moment: datetime) -> int:
    """The first millisecond that is not before the moment, which must have a time zone."""
    return -((_EPOCH - moment) // _MILLISECOND)


def span_ms(span: timedelta) -> int:
    """The fewest milliseconds that are not shorter than the span."""
    whole, rest = divmod(span, _MILLISECOND)
    return whole + (rest > timedelta(0))


def _number(text: str, header: str, unit: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()):
        raise ValueError(f"{header} {_shown(text)} is not a whole number ({unit})")
    if digits != text:
        raise ValueError(f"{header} {_shown(text)} is negative")
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"{header} {_shown(text)} is too large ({unit})")
    return int(digits)


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 40 else f"{text[:40]!r}…"
