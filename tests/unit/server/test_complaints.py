"""However much strangers do, the log grows by a line per address and minute, and by a bounded number of them."""

from __future__ import annotations

import pytest

from headrace.server.complaints import MOST_ADDRESSES, Complaints


class Time:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_the_first_is_written_and_the_others_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    time = Time()
    complaints = Complaints(time)
    for number in range(813):
        complaints.note("10.0.0.1", f"nonsense {number}")
        complaints.note("10.0.0.2", "other nonsense") if number == 5 else None
    assert [record.message for record in caplog.records] == ["nonsense 0", "other nonsense"]
    complaints.tell(59.0)
    assert len(caplog.records) == 2
    complaints.tell(60.0)
    complaints.tell(61.0)
    assert [record.message for record in caplog.records[2:]] == [
        "10.0.0.1: 812 more of these within a minute, the last: nonsense 812"
    ], "one that did nothing more is not mentioned again"


def test_the_next_minute_begins_with_the_next_one(caplog: pytest.LogCaptureFixture) -> None:
    time = Time()
    complaints = Complaints(time)
    for at in (0.0, 1.0, 70.0, 71.0):
        time.now_s = at
        complaints.note("a", f"at {at:.0f}")
    assert [record.message for record in caplog.records] == [
        "at 0",
        "a: 1 more of these within a minute, the last: at 1",
        "at 70",
    ]


def test_many_addresses_share_one_line(caplog: pytest.LogCaptureFixture) -> None:
    time = Time()
    complaints = Complaints(time)
    for number in range(10_000):
        complaints.note(f"fe80::{number:x}", "nonsense")
    assert len(caplog.records) == MOST_ADDRESSES + 1
    complaints.tell(60.0)
    assert caplog.records[-1].message == (
        f"other addresses: {10_000 - MOST_ADDRESSES - 1} more of these within a minute, the last: nonsense"
    )
    assert len(caplog.records) == MOST_ADDRESSES + 2
    assert not complaints._accounts


def test_what_a_stranger_wrote_stays_in_its_line(caplog: pytest.LogCaptureFixture) -> None:
    Complaints(Time()).note("a", "no topic 'x\n2026-01-01 ERROR all is lost\x1b[2J" + "y" * 1000)
    (record,) = caplog.records
    assert "\n" not in record.message
    assert "\x1b" not in record.message
    assert len(record.message) < 500


def test_an_error_of_ours_is_written_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    error = KeyError("a bug")
    Complaints(Time()).note("a", "a request failed", error)
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.exc_info is not None
    assert record.exc_info[1] is error
