"""Values that several commands share are read in one way, and a bad one is quoted."""

import pytest
import typer

from headrace.cli.options import parse_address, parse_brokers, parse_pairs, parse_topic_partition, unescape
from headrace.cli.places import LogPosition, parse_place


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("[::1]:9092", ("::1", 9092)),
        ("queue.example.com:0", ("queue.example.com", 0)),
    ],
)
def test_an_address_is_host_and_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "host", "host:", ":9092", "host:http", "host:65536", "host:-1"])
def test_a_bad_address_is_quoted(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not HOST:PORT"):
        parse_address(text)


def test_several_brokers_stand_with_commas() -> None:
    assert parse_brokers("a:1, b:2") == [("a", 1), ("b", 2)]


def test_a_pair_may_have_an_empty_value_and_more_equal_signs() -> None:
    assert parse_pairs(["a=1", "b=", "c=x=y"], "setting") == {"a": "1", "b": "", "c": "x=y"}


@pytest.mark.parametrize("text", ["a", "=1", ""])
def test_what_is_not_a_pair_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="write NAME=VALUE"):
        parse_pairs([text], "setting")


def test_a_partition_stands_behind_a_colon() -> None:
    assert parse_topic_partition("orders") == ("orders", None)
    assert parse_topic_partition("orders:3") == ("orders", 3)


@pytest.mark.parametrize("text", ["", ":1", "orders:", "orders:x", "orders:-1"])
def test_a_bad_partition_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="TOPIC:PARTITION"):
        parse_topic_partition(text)


@pytest.mark.parametrize(
    ("typed", "meant"), [(r"a\tb\n", "a\tb\n"), (r"\\n", r"\n"), (r"\x3a", ":"), (r"\0", "\0"), ("plain", "plain")]
)
def test_escapes_stand_for_one_character(typed: str, meant: str) -> None:
    assert unescape(typed) == meant


@pytest.mark.parametrize("typed", ["\\", r"\q", r"\x", r"\x4", r"\xzz"])
def test_an_unknown_escape_is_refused(typed: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not an escape"):
        unescape(typed)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("start", LogPosition("start")),
        ("end", LogPosition("end")),
        ("offset:42", LogPosition("offset", 42)),
        ("offset:-5", LogPosition("offset", -5)),
        ("time:1000", LogPosition("time", 1000)),
        ("time:-1s", LogPosition("time", 9000)),
        ("shift:-3", LogPosition("shift", -3)),
    ],
)
def test_a_place_in_a_log_has_five_forms(text: str, place: LogPosition) -> None:
    assert parse_place(text, now=10_000, shift_allowed=True) == place


@pytest.mark.parametrize("text", ["", "middle", "offset", "offset:x", "start:1", "time:", "shift:1"])
def test_a_bad_place_is_refused_and_a_shift_where_there_is_nothing_to_shift(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a place in a log"):
        parse_place(text, now=0)
