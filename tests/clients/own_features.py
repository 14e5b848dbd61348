"""What the Python suites share of the stories that only headrace tells: the headers of delayed records, and the records
that views are asked for.

Every client is asked for the same: `due_in_time` judges when a released record came, and `TAGGED` with `VIEWS` says
which records belong in which view.
"""

import time
from collections.abc import Iterable

HOUR = b"3600000"
DELAY, DELIVER_AT, CRON, CRON_ZONE = "headrace.delay-ms", "headrace.deliver-at", "headrace.cron", "headrace.cron-tz"
CANCEL, CANCEL_KEY, MOVE = "headrace.cancel", "headrace.cancel-key", "headrace.move"
SCHEDULED_ID, SCHEDULED_FOR = "headrace.scheduled.id", "headrace.scheduled.for"
LEAP_DAYS = (b"30 4 29 2 *", b"Europe/Berlin")  # a schedule that is not due while a test runs

# No wish for a delay: each is refused, and nothing of it is stored.
REFUSED_DELAYS: tuple[tuple[str, bytes], ...] = (
    (DELAY, b"soon"),
    (DELAY, b"-1"),
    (DELAY, b"NaN"),
    (DELAY, b"99999999999999999999"),
    (DELIVER_AT, b"2030-01-01T00:00:00"),
    (CRON, b"0 0 30 2 *"),
)

TAG = "headrace.tag"
TAGGED: list[tuple[bytes, tuple[bytes, ...]]] = [
    (b"%d" % number, ((b"red",), (b"green",), (b"green", b"red"), ())[number % 4]) for number in range(40)
]
# The view's tags and how it matches, and the numbers of the records in it.
VIEWS: tuple[tuple[str, str, list[int]], ...] = (
    ("red", "any", [number for number in range(40) if number % 4 in (0, 2)]),
    ("red,green", "all", [number for number in range(40) if number % 4 == 2]),
    ("red", "none", [number for number in range(40) if number % 4 in (1, 3)]),
)


CLOCKS_MS = 100  # by which the broker's time may differ from ours: it follows no steps of the wall clock while it leads


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def due_in_time(headers: Iterable[tuple[str, bytes]], identifier: int, earliest_ms: int, latest_ms: int) -> None:
    """The record is that which was scheduled under this id, due in this range, and it comes when it is due."""
    came_ms, found = now_ms(), dict(headers)
    due_ms = int(found[SCHEDULED_FOR])
    assert int(found[SCHEDULED_ID]) == identifier, found
    assert earliest_ms - CLOCKS_MS <= due_ms <= latest_ms + CLOCKS_MS, (earliest_ms, due_ms, latest_ms)
    assert came_ms + CLOCKS_MS >= due_ms, f"due at {due_ms}, but it was there at {came_ms}"
    assert not {DELAY, DELIVER_AT, CRON, CRON_ZONE} & set(found), found
