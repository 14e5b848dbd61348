"""When a message is to be delivered: a program's arguments become headers, or one clear line."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from headrace.sdk.errors import BadMessage
from headrace.sdk.record import Record
from headrace.sdk.timing import moment_ms, timing_headers

NOW = 1_800_000_000_000
TEN_YEARS = timedelta(days=3660)


def headers(**arguments: Any) -> list[tuple[str, bytes | None]]:
    given = {"delay": None, "deliver_at": None, "cron": None, "cron_tz": None, **arguments}
    return timing_headers(given["delay"], given["deliver_at"], given["cron"], given["cron_tz"], NOW)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, []),
        ({"delay": timedelta(minutes=10)}, [("headrace.delay-ms", b"600000")]),
        ({"delay": timedelta(0)}, [("headrace.delay-ms", b"0")]),
        ({"delay": timedelta(microseconds=1500)}, [("headrace.delay-ms", b"2")]),
        ({"delay": TEN_YEARS}, [("headrace.delay-ms", b"316224000000")]),
        ({"deliver_at": NOW + 5}, [("headrace.deliver-at", b"1800000000005")]),
        ({"deliver_at": 0}, [("headrace.deliver-at", b"0")]),
        ({"deliver_at": datetime(2027, 1, 15, 8, tzinfo=UTC)}, [("headrace.deliver-at", b"1800000000000")]),
        (
            {"deliver_at": datetime(2027, 1, 15, 9, tzinfo=timezone(timedelta(hours=1)))},
            [("headrace.deliver-at", b"1800000000000")],
        ),
        ({"cron": "0 * * * *"}, [("headrace.cron", b"0 * * * *")]),
        (
            {"cron": "0 8 * * *", "cron_tz": "Europe/Berlin"},
            [("headrace.cron", b"0 8 * * *"), ("headrace.cron-tz", b"Europe/Berlin")],
        ),
    ],
)
def test_arguments_become_headers(arguments: dict[str, Any], expected: list[tuple[str, bytes]]) -> None:
    assert headers(**arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"delay": timedelta(seconds=-1)}, "delay: headrace.delay-ms -1000 is negative"),
        ({"delay": TEN_YEARS + timedelta(microseconds=1)}, "more than 3660 days"),
        ({"delay": timedelta.max}, "more than 3660 days"),
        ({"delay": 600}, "delay=600 is not a timedelta"),
        ({"delay": float("nan")}, "delay=nan is not a timedelta"),
        ({"deliver_at": datetime(2027, 1, 15)}, "deliver_at=2027-01-15T00:00:00 has no time zone"),
        ({"deliver_at": float("nan")}, "deliver_at=nan is neither"),
        ({"deliver_at": True}, "deliver_at=True is neither"),
        ({"deliver_at": "2027-01-15"}, "deliver_at='2027-01-15' is neither"),
        ({"deliver_at": -1}, "before 1970"),
        ({"deliver_at": NOW * 1000}, "is it in epoch milliseconds"),
        ({"deliver_at": 10**400}, "3660 days"),
        ({"deliver_at": datetime.max.replace(tzinfo=UTC)}, "3660 days"),
        ({"cron": "0 0 30 2 *"}, "cron: headrace.cron '0 0 30 2 .' cannot be used"),
        ({"cron": "* * * * *", "cron_tz": "Nowhere"}, "'Nowhere' is not a time zone"),
        ({"cron": "* * * * *", "cron_tz": ""}, "'' is not a time zone"),
        ({"cron": 5}, "cron and cron_tz are text"),
        ({"cron_tz": "UTC"}, "cron_tz is given without cron"),
        ({"delay": timedelta(1), "deliver_at": NOW}, "delay and deliver_at contradict each other"),
        ({"deliver_at": NOW, "cron": "* * * * *"}, "deliver_at and cron contradict each other"),
    ],
)
def test_a_bad_time_is_refused_before_anything_is_sent(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadMessage, match=complaint):
        headers(**arguments)


def test_a_limit_of_a_list_is_a_moment_too() -> None:
    assert moment_ms(datetime(2027, 1, 15, 8, tzinfo=UTC), "due_after") == NOW
    with pytest.raises(BadMessage, match="due_before=2027-01-15T00:00:00 has no time zone"):
        moment_ms(datetime(2027, 1, 15), "due_before")


def test_a_record_is_delayed_if_it_says_when() -> None:
    assert not Record("v").is_delayed
    assert Record("v", delay=timedelta(0)).is_delayed
    assert Record("v", deliver_at=0).is_delayed
    assert Record("v", cron="* * * * *").is_delayed
