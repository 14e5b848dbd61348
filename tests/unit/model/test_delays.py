"""The values of delay headers: what is accepted, and what is refused in words."""

from datetime import UTC, datetime, timedelta

import pytest

from headrace.model.delays import (
    MAX_DELAY_MS,
    checked_due,
    delay_ms,
    deliver_at_ms,
    epoch_ms,
    record_id,
    span_ms,
)

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "value_ms"), [("0", 0), ("1", 1), ("600000", 600_000), (str(MAX_DELAY_MS), MAX_DELAY_MS)]
)
def test_a_delay_is_up_to_ten_years_of_milliseconds(text: str, value_ms: int) -> None:
    assert delay_ms(text) == value_ms


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "'' is not a whole number"),
        ("ten", "'ten' is not a whole number"),
        ("nan", "'nan' is not a whole number"),
        ("inf", "not a whole number"),
        ("1.5", "not a whole number"),
        ("1e3", "not a whole number"),
        (" 1", "not a whole number"),
        ("+1", "not a whole number"),
        ("1_000", "not a whole number"),
        ("٣", "not a whole number"),
        ("-1", "'-1' is negative"),
        ("--1", "not a whole number"),
        (str(MAX_DELAY_MS + 1), "more than 3660 days"),
        ("9" * 19, "more than 3660 days"),
        ("9" * 5000, "is too large"),
    ],
)
def test_any_other_delay_is_named_and_quoted(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as refusal:
        delay_ms(text)
    assert str(refusal.value).startswith("headrace.delay-ms ")
    assert len(str(refusal.value)) < 150


@pytest.mark.parametrize(
    ("text", "due_ms"),
    [
        (str(NOW + 1), NOW + 1),
        ("0", 0),
        ("2027-01-15T08:00:00Z", NOW),
        ("2027-01-15T09:00:00+01:00", NOW),
        ("2027-01-15T08:00:00.250+00:00", NOW + 250),
        ("2027-01-15T08:00:00.000001Z", NOW + 1),
        ("2017-01-15T08:00:00Z", 1_484_467_200_000),
    ],
)
def test_a_date_is_epoch_milliseconds_or_iso_with_a_zone_and_may_be_past(text: str, due_ms: int) -> None:
    assert deliver_at_ms(text, NOW) == due_ms


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("tomorrow", "'tomorrow' is neither epoch milliseconds nor ISO 8601"),
        ("", "is neither"),
        ("nan", "is neither"),
        ("1.5", "is neither"),
        ("2027-01-15T08:00:00", "has no time zone"),
        ("2027-01-15", "has no time zone"),
        ("1969-12-31T23:59:59Z", "before 1970"),
        ("-5", "is negative"),
        ("9999-12-31T23:59:59Z", "more than 3660 days from now"),
        (str(NOW * 1000), "is it in epoch milliseconds"),
        ("9" * 5000, "is too large"),
        ("²", "is neither"),
    ],
)
def test_any_other_date_is_named_and_quoted(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as refusal:
        deliver_at_ms(text, NOW)
    assert str(refusal.value).startswith("headrace.deliver-at ")


def test_the_longest_date_is_as_far_away_as_the_longest_delay() -> None:
    assert checked_due(NOW + MAX_DELAY_MS, NOW) == NOW + MAX_DELAY_MS
    with pytest.raises(ValueError, match="3660 days"):
        checked_due(NOW + MAX_DELAY_MS + 1, NOW)


def test_an_id_is_an_offset() -> None:
    assert record_id("41", "headrace.cancel") == 41
    with pytest.raises(
        ValueError, match=r"headrace\.move 'x' is not a whole number \(the offset of a delayed record\)"
    ):
        record_id("x", "headrace.move")


def test_nothing_is_rounded_down() -> None:
    assert epoch_ms(datetime(1970, 1, 1, tzinfo=UTC)) == 0
    assert epoch_ms(datetime(1970, 1, 1, microsecond=1001, tzinfo=UTC)) == 2
    assert span_ms(timedelta(microseconds=1)) == 1
    assert span_ms(timedelta(milliseconds=5)) == 5
    assert span_ms(timedelta(microseconds=-1)) == 0
    assert span_ms(timedelta.max) > MAX_DELAY_MS
    assert span_ms(timedelta.min) < 0
