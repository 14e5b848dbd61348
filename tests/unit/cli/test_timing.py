"""`--delay`, `--at`, `--cron` and the choice of pending messages: what they mean, and which are usage errors."""

from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.cli.pending import parse_id, selection, short
from headrace.cli.timing import timing_headers


def test_options_become_headers() -> None:
    assert timing_headers(None, None) == []
    assert timing_headers("10m", None) == [("headrace.delay-ms", b"600000")]
    assert timing_headers(None, "2026-12-01T08:00:00Z") == [("headrace.deliver-at", b"1796112000000")]
    assert timing_headers(None, None, "0 8 * * *", "Europe/Berlin") == [
        ("headrace.cron", b"0 8 * * *"),
        ("headrace.cron-tz", b"Europe/Berlin"),
    ]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"delay": "10"}, "'10' is not a duration: write 90s, 10m or 1d12h"),
        ({"delay": "-10m"}, "'-10m' is not a duration"),
        ({"delay": "4000d"}, "more than 3660 days"),
        ({"at": "tomorrow"}, "'tomorrow' is not a time"),
        ({"at": "3000-01-01T00:00:00Z"}, "more than 3660 days from now"),
        ({"cron": "0 8 30 2 *"}, "cannot be used: bad day-of-month"),
        ({"cron": "daily"}, "has 1 fields, not 5"),
        ({"cron": "0 8 * * *", "zone": "Berlin"}, "'Berlin' is not a time zone"),
        ({"zone": "UTC"}, "--tz is the time zone of --cron"),
        ({"delay": "1s", "at": "now"}, "give only one of --delay, --at and --cron"),
    ],
)
def test_a_bad_time_is_a_usage_error(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(typer.BadParameter, match=complaint):
        timing_headers(options.get("delay"), options.get("at"), options.get("cron"), options.get("zone"))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["cancel"], "say which messages: --id PARTITION:ID, --key, --due-after or --due-before"),
        (["cancel", "--id", "0:41", "--key", "k"], "--id names messages: leave out --key"),
        (["cancel", "--due-after", "+2h", "--due-before", "+1h"], "--due-after is not before --due-before"),
        (["list", "--due-after", "soon"], "'soon' is not a time"),
        (["move", "--id", "0:41"], "say to when: --delay SPAN or --at TIME"),
        (["move", "--delay", "1h"], "say which messages"),
        (["move", "--id", "0:41", "--delay", "1h", "--at", "now"], "give only one of --delay, --at"),
        (["show"], "Missing option '--id'"),
    ],
)
def test_a_command_that_does_not_say_what_it_means_is_a_usage_error(arguments: list[str], complaint: str) -> None:
    done = CliRunner().invoke(app, ["schedule", arguments[0], "orders", *arguments[1:]])
    assert done.exit_code == 2
    assert complaint in " ".join(done.stderr.split())


@pytest.mark.parametrize("text", ["41", "0:", ":1", "0:-1", "a:1", "0:1:2", f"0:{2**63}", f"{2**31}:0", "٣:1"])
def test_what_is_not_an_id_is_quoted(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="PARTITION:ID"):
        parse_id(text)


def test_an_id_that_is_given_twice_counts_once() -> None:
    assert selection(["0:41", "1:7", "0:41"], None, None, None).ids == ((0, 41), (1, 7))


def test_a_value_in_a_table_is_one_short_line() -> None:
    shown: list[Any] = [short(None), short(b"a\nb"), short(b"\xff"), short(b"x" * 50)]
    assert shown == [None, r"a\nb", r"\xff", "x" * 39 + "…"]


def test_help_shows_examples() -> None:
    for command in ("list", "show", "cancel", "move"):
        assert f"$ headrace schedule {command} reminders" in CliRunner().invoke(app, ["schedule", command, "-h"]).stdout
    assert "--cron '0 8 * * *' --tz Europe/Berlin" in CliRunner().invoke(app, ["produce", "-h"]).stdout
