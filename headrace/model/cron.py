"""When a cron expression fires next, with time zones and daylight saving time.

Shared by the broker, which schedules by it, and by the SDK and the command line, which refuse a bad expression before
it is sent. cronsim does the arithmetic, by the rules of Debian's cron: a job at a fixed time that falls into the gap of
spring runs once, right after the gap; in the overlap of autumn it runs once, the first time. A job whose minute or hour
starts with a star runs by elapsed time: every hour is every real hour. Invariant: the result is later than the time
asked about, and the same on every broker with the same time zone data.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from headrace.model.delays import CRON_HEADER, CRON_TZ_HEADER, epoch_ms

DEFAULT_ZONE = "UTC"
MAX_LENGTH = 200  # of an expression or a zone's name
FIELDS = 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def next_due_ms(expression: str, zone: str, after_ms: int) -> int:
    """When the expression fires first after this time, in epoch milliseconds; ValueError if it is bad or never does."""
    if len(expression) > MAX_LENGTH:
        raise ValueError(f"{CRON_HEADER} has {len(expression)} characters, at most {MAX_LENGTH} are allowed")
    count = len(expression.split())
    if count != FIELDS:
        raise ValueError(
            f"{CRON_HEADER} {expression!r} has {count} fields, not {FIELDS}: minute, hour, day of month, month, "
            "day of week, such as '0 8 * * *'"
        )
    place = time_zone(zone)
    try:
        times = CronSim(expression, (_EPOCH + timedelta(milliseconds=after_ms)).astimezone(place))
        for moment in times:
            due_ms = epoch_ms(moment)
            # In the second pass of an overlap, times of the first come up again: they are over.
            if due_ms > after_ms:
                return due_ms
    except CronSimError as error:
        wrong = str(error)[:1].lower() + str(error)[1:]
        raise ValueError(f"{CRON_HEADER} {expression!r} cannot be used: {wrong}") from None
    except (ValueError, OverflowError, AssertionError) as error:
        raise ValueError(f"{CRON_HEADER} {expression!r} cannot be used: {error}") from None
    raise ValueError(f"{CRON_HEADER} {expression!r} never fires")


def time_zone(name: str) -> tzinfo:
    """The zone of an IANA name."""
    if name == DEFAULT_ZONE:
        return UTC
    try:
        if len(name) <= MAX_LENGTH:
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError: the name of a folder of zones, such as Europe
        pass
    raise ValueError(f"{CRON_TZ_HEADER} {name[:MAX_LENGTH]!r} is not a time zone: use a name such as Europe/Berlin")
