"""When cron expressions fire: by the wall clock of a zone, also on the two odd days of a year."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.cron import next_due_ms

BERLIN = "Europe/Berlin"


def firings(expression: str, zone: str, after: str, count: int) -> list[str]:
    """The next times, as the wall clock of the zone shows them."""
    at_ms = round(datetime.fromisoformat(after).timestamp() * 1000)
    found = []
    for _ in range(count):
        at_ms = next_due_ms(expression, zone, at_ms)
        found.append(datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone)).isoformat(timespec="minutes"))
    return found


def test_a_daily_job_follows_the_wall_clock() -> None:
    assert firings("0 8 * * *", BERLIN, "2026-03-27T12:00:00Z", 3) == [
        "2026-03-28T08:00+01:00",
        "2026-03-29T08:00+02:00",
        "2026-03-30T08:00+02:00",
    ]
    assert firings("0 8 * * *", "UTC", "2026-03-28T08:00:00Z", 1) == ["2026-03-29T08:00+00:00"]
    assert firings("0 8 * * *", "UTC", "2026-03-28T07:59:59.999Z", 1) == ["2026-03-28T08:00+00:00"]


def test_a_job_in_the_gap_of_spring_runs_once_right_after_it() -> None:
    assert firings("30 2 * * *", BERLIN, "2026-03-28T12:00:00Z", 2) == [
        "2026-03-29T03:00+02:00",
        "2026-03-30T02:30+02:00",
    ]


def test_two_jobs_that_meet_after_the_gap_are_one() -> None:
    assert firings("0 2,3 * * *", BERLIN, "2026-03-28T12:00:00Z", 2) == [
        "2026-03-29T03:00+02:00",
        "2026-03-30T02:00+02:00",
    ]


def test_a_job_in_the_overlap_of_autumn_runs_once_the_first_time() -> None:
    assert firings("30 2 * * *", BERLIN, "2026-10-24T12:00:00Z", 2) == [
        "2026-10-25T02:30+02:00",
        "2026-10-26T02:30+01:00",
    ]


def test_a_schedule_made_within_the_second_pass_does_not_go_back_to_the_first() -> None:
    assert firings("45 2 * * *", BERLIN, "2026-10-25T01:30:00Z", 1) == ["2026-10-26T02:45+01:00"]


def test_an_hourly_job_runs_every_real_hour() -> None:
    assert firings("0 * * * *", BERLIN, "2026-10-24T23:30:00Z", 3) == [
        "2026-10-25T02:00+02:00",
        "2026-10-25T02:00+01:00",
        "2026-10-25T03:00+01:00",
    ]
    assert firings("0 * * * *", BERLIN, "2026-03-28T23:30:00Z", 2) == [
        "2026-03-29T01:00+01:00",
        "2026-03-29T03:00+02:00",
    ]


def test_a_leap_day_may_be_years_away() -> None:
    assert firings("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", 1) == ["2028-02-29T00:00+00:00"]


@given(
    minute=st.sampled_from(["*", "0", "*/7", "15,45", "30"]),
    hour=st.sampled_from(["*", "2", "1-4", "*/3", "0,23"]),
    zone=st.sampled_from([BERLIN, "UTC", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo"]),
    after_ms=st.integers(1_750_000_000_000, 1_850_000_000_000),
)
def test_the_next_time_is_later_and_none_is_skipped_when_asked_again(
    minute: str, hour: str, zone: str, after_ms: int
) -> None:
    expression = f"{minute} {hour} * * *"
    due_ms = next_due_ms(expression, zone, after_ms)
    assert due_ms > after_ms
    assert next_due_ms(expression, zone, due_ms - 1) == due_ms
    assert next_due_ms(expression, zone, (after_ms + due_ms) // 2) == due_ms


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("0 0 30 2 *", "bad day-of-month"),
        ("0 0 31 4,6 *", "bad day-of-month"),
        ("60 * * * *", "bad minute"),
        ("* 24 * * *", "bad hour"),
        ("* * * * mon-", "bad day-of-week"),
        ("9" * 100 + " * * * *", "bad minute"),
        ("@daily", "has 1 fields, not 5"),
        ("* * * *", "has 4 fields, not 5"),
        ("0 0 8 * * *", "has 6 fields, not 5"),
        ("", "has 0 fields, not 5"),
        ("* " * 200, "at most 200 are allowed"),
    ],
)
def test_an_expression_that_is_bad_or_never_fires_is_refused(expression: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as refusal:
        next_due_ms(expression, BERLIN, 1_800_000_000_000)
    assert str(refusal.value).startswith("headrace.cron ")


@pytest.mark.parametrize("zone", ["", "Nowhere", "Europe", "../UTC", "/etc/localtime", "a\0b", "x" * 5000])
def test_a_zone_that_is_not_known_is_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="is not a time zone: use a name such as Europe/Berlin") as refusal:
        next_due_ms("* * * * *", zone, 0)
    assert len(str(refusal.value)) < 300
