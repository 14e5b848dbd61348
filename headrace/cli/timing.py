"""When messages are to be delivered, as options: `--delay 10m`, `--at TIME`, `--cron '0 8 * * *' --tz ZONE`.

Called by `produce` and by `schedule move`. Invariant: at most one of them is accepted, and a value that the broker
would refuse is a usage error before anything is sent.
"""

from collections.abc import Callable
from typing import Annotated

import typer

from headrace.cli.moments import now_ms, parse_moment, parse_span
from headrace.model.delays import (
    CRON_HEADER,
    CRON_TZ_HEADER,
    DELAY_MS_HEADER,
    DELIVER_AT_HEADER,
    checked_delay,
    checked_due,
)

DelayOption = Annotated[
    str | None, typer.Option("--delay", metavar="SPAN", help="Deliver after this time: 90s, 10m, 1d12h.")
]
AtOption = Annotated[
    str | None, typer.Option("--at", metavar="TIME", help="Deliver at this time: ISO, epoch ms, or +2h.")
]
CronOption = Annotated[
    str | None, typer.Option("--cron", metavar="FIELDS", help="Deliver again and again: '0 8 * * *' is daily at eight.")
]
ZoneOption = Annotated[str | None, typer.Option("--tz", metavar="ZONE", help="Time zone of --cron; default: UTC.")]


def timing_headers(
    delay: str | None, at: str | None, cron: str | None = None, zone: str | None = None
) -> list[tuple[str, bytes]]:
    """The headers that say when to deliver; none if none of the options is given."""
    if sum(each is not None for each in (delay, at, cron)) > 1:
        raise typer.BadParameter("give only one of --delay, --at and --cron")
    if zone is not None and cron is None:
        raise typer.BadParameter("--tz is the time zone of --cron: give both")
    if delay is not None:
        return [(DELAY_MS_HEADER, str(usable(lambda: checked_delay(parse_span(delay)))).encode())]
    if at is not None:
        now = now_ms()
        return [(DELIVER_AT_HEADER, str(usable(lambda: checked_due(parse_moment(at, now), now))).encode())]
    if cron is None:
        return []
    from headrace.model.cron import DEFAULT_ZONE, next_due_ms

    usable(lambda: next_due_ms(cron, zone or DEFAULT_ZONE, now_ms()))
    return [(CRON_HEADER, cron.encode()), *([(CRON_TZ_HEADER, zone.encode())] if zone else [])]


def usable(value: Callable[[], int]) -> int:
    """A checked value; what is wrong with it becomes a usage error."""
    try:
        return value()
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
