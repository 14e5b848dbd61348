"""When cron fires, daylight saving included: Berlin skips 2 to 3 on 2026-03-29 and repeats it on 2026-10-25."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise

import pytest

from headrace.log.cron import BadCron, next_occasion


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("expression", "zone", "after", "due"),
    [
        ("*/5 * * * *", "UTC", "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"),
        ("*/5 * * * *", "UTC", "2026-01-01T00:04:59.999Z", "2026-01-01T00:05:00Z"),
        ("0 9 * * mon", "America/New_York", "2026-01-01T00:00:00Z", "2026-01-05T14:00:00Z"),
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"),  # skipped: right after it
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"),  # twice: the first
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"),
    ],
)
def test_it_fires_next(expression: str, zone: str, after: str, due: str) -> None:
    assert next_occasion(expression, zone, ms(after)) == ms(due)


def test_every_half_hour_goes_on_through_a_repeated_hour() -> None:
    at, found = ms("2026-10-24T23:45:00Z"), []
    for _ in range(6):
        at = next_occasion("*/30 * * * *", "Europe/Berlin", at)
        found.append(at)
    assert {later - earlier for earlier, later in pairwise(found)} == {1_800_000}


@pytest.mark.parametrize(
    ("expression", "zone"),
    [
        ("0 0 30 2 *", "UTC"),
        ("* * * *", "UTC"),
        ("* * * * * *", "UTC"),
        ("61 * * * *", "UTC"),
        ("", "UTC"),
        ("* * * * *", "Middle/Earth"),
        ("* * * * *", "../etc/passwd"),
        ("* * * * *", ""),
    ],
)
def test_what_never_fires_is_refused_in_words(expression: str, zone: str) -> None:
    with pytest.raises(BadCron, match=r"cron|time zone"):
        next_occasion(expression, zone, 0)
