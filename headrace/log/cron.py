"""When a cron expression next fires.

Five fields, as Debian's cron has them (the library cronsim), in a time zone of the IANA database. Daylight saving, as
there: of an hour that clocks skip, what would have fired in it at a fixed time fires right after the gap; an hour that
comes twice does not fire fixed times twice. What fires every hour or every few minutes goes by the time that passes.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_LONGEST = 200  # characters of an expression
_FIELDS = 5


class BadCron(ValueError):
    """An expression or a time zone that cannot be used; the message says why."""


@lru_cache(maxsize=1024)
def time_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        raise BadCron(f"the time zone {name[:_LONGEST]!r} is unknown") from None


@lru_cache(maxsize=4096)
def next_occasion(expression: str, zone: str, after_ms: int) -> int:
    """The first time after `after_ms` at which it fires. BadCron if there is none."""
    if len(expression) > _LONGEST or len(expression.split()) != _FIELDS:
        raise BadCron(f"the cron expression {expression[:_LONGEST]!r} has not five fields")
    try:
        after = datetime.fromtimestamp(after_ms // 1000, UTC).astimezone(time_zone(zone))
        at = next(CronSim(expression, after))
        due_ms = int(at.timestamp() * 1000)
        while due_ms <= after_ms:
            at = next(CronSim(expression, at))
            due_ms = int(at.timestamp() * 1000)
        return due_ms
    except CronSimError as error:
        raise BadCron(f"the cron expression {expression!r} is wrong: {error}") from None
    except (StopIteration, OverflowError, ValueError, OSError) as error:
        if isinstance(error, BadCron):
            raise
        raise BadCron(f"the cron expression {expression!r} never fires") from None
