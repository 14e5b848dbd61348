"""Times as people type them, and spans as they read them."""

import pytest
import typer

from headrace.cli.moments import describe_moment, describe_span, parse_moment, parse_span

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "moment_ms"),
    [
        ("now", NOW),
        ("0", 0),
        ("1690000000123", 1_690_000_000_123),
        ("-2h", NOW - 7_200_000),
        ("-90s", NOW - 90_000),
        ("-1d12h", NOW - 129_600_000),
        ("-250ms", NOW - 250),
        ("-1m", NOW - 60_000),
        ("-2w", NOW - 1_209_600_000),
        ("+2h", NOW + 7_200_000),
        ("+1d12h", NOW + 129_600_000),
        ("2023-11-14T22:13:20Z", NOW),
        ("2023-11-14T23:13:20+01:00", NOW),
        ("2023-11-14T22:13:20.250Z", NOW + 250),
    ],
)
def test_a_time_is_read_as_iso_epoch_milliseconds_or_span(text: str, moment_ms: int) -> None:
    assert parse_moment(text, NOW) == moment_ms


def test_a_time_without_zone_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC-2")  # POSIX counts west: this zone is two hours ahead of UTC
    time.tzset()
    try:
        assert parse_moment("2023-11-15T00:13:20", NOW) == NOW
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2h", "-", "-h", "-2", "-2x", "1969-01-01T00:00:00Z", "-9999999w", "+", "+2", "2h+"]
)
def test_what_is_not_a_time_is_quoted_with_good_examples(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a time: write 2025"):
        parse_moment(text, NOW)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.4, "<1s"), (12.9, "12s"), (61, "1m 1s"), (7200, "2h"), (97_200, "1d 3h"), (86_460, "1d")],
)
def test_a_span_shows_its_two_largest_units(seconds: float, text: str) -> None:
    assert describe_span(seconds) == text


def test_no_timestamp_is_a_dash_and_an_absurd_one_a_number() -> None:
    assert describe_moment(-1) == "-"
    assert describe_moment(2**62) == str(2**62)


@pytest.mark.parametrize(("text", "span_ms"), [("10m", 600_000), ("250ms", 250), ("1d12h", 129_600_000), ("0s", 0)])
def test_a_duration_has_one_unit_or_more(text: str, span_ms: int) -> None:
    assert parse_span(text) == span_ms


@pytest.mark.parametrize("text", ["", "10", "-10m", "10 m", "m", "1.5h", "nan", "tomorrow"])
def test_what_is_no_duration_is_quoted_with_good_examples(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a duration: write 90s"):
        parse_span(text)
