"""When a message is to be delivered, from a program's arguments to the headers that the broker reads.

Called by the producers and by Schedules before anything is sent. Pure: the present time is an argument. Invariant: what
the broker would refuse for its value alone is refused here, as BadMessage with the argument's name.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from headrace.model.cron import DEFAULT_ZONE, next_due_ms
from headrace.model.delays import (
    CRON_HEADER,
    CRON_TZ_HEADER,
    DELAY_MS_HEADER,
    DELIVER_AT_HEADER,
    checked_delay,
    checked_due,
    epoch_ms,
    span_ms,
)
from headrace.sdk.errors import BadMessage
from headrace.sdk.message import Header


def timing_headers(
    delay: timedelta | None,
    deliver_at: datetime | int | None,
    cron: str | None,
    cron_tz: str | None,
    now_ms: int,
) -> list[Header]:
    """The headers of a message that is delivered later; at most one of delay, deliver_at and cron may be given."""
    given = {"delay": delay, "deliver_at": deliver_at, "cron": cron}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise BadMessage(f"{' and '.join(named)} contradict each other: give only one")
    if cron_tz is not None and cron is None:
        raise BadMessage("cron_tz is given without cron: it is the time zone of a cron expression")
    try:
        if delay is not None:
            return [(DELAY_MS_HEADER, str(_delay_ms(delay)).encode())]
        if deliver_at is not None:
            return [(DELIVER_AT_HEADER, str(due_ms(deliver_at, "deliver_at", now_ms)).encode())]
        if cron is not None:
            return _cron_headers(cron, cron_tz, now_ms)
    except ValueError as error:
        raise BadMessage(f"{named[0]}: {error}") from None
    return []


def due_ms(moment: datetime | int, argument: str, now_ms: int) -> int:
    """A due time in epoch milliseconds."""
    return checked_due(moment_ms(moment, argument), now_ms)


def moment_ms(moment: datetime | int, argument: str) -> int:
    """A time in epoch milliseconds. A datetime without a zone is refused: it means another time on another machine."""
    if isinstance(moment, datetime):
        if moment.utcoffset() is None:
            raise BadMessage(
                f"{argument}={moment.isoformat()} has no time zone: use datetime(..., tzinfo=UTC), or .astimezone()"
            )
        return epoch_ms(moment)
    if isinstance(moment, int) and not isinstance(moment, bool):
        return moment
    raise BadMessage(f"{argument}={moment!r} is neither a datetime with a time zone nor whole epoch milliseconds")


def _delay_ms(delay: timedelta) -> int:
    if not isinstance(delay, timedelta):
        raise BadMessage(f"delay={delay!r} is not a timedelta: use timedelta(minutes=10)")
    return checked_delay(span_ms(delay))


def _cron_headers(cron: str, zone: str | None, now_ms: int) -> list[Header]:
    if not isinstance(cron, str) or not isinstance(zone, str | None):
        raise BadMessage("cron and cron_tz are text, such as '0 8 * * *' and 'Europe/Berlin'")
    next_due_ms(cron, DEFAULT_ZONE if zone is None else zone, now_ms)
    headers: list[Header] = [(CRON_HEADER, cron.encode())]
    if zone is not None:
        headers.append((CRON_TZ_HEADER, zone.encode()))
    return headers
