"""Consumed messages as text: format strings and JSON lines."""

import json
from typing import Any

import pytest
import typer

from headrace.cli.message_text import json_line, parse_format


class Consumed:
    """A message with the face of the client's own, whose constructor is not public."""

    def __init__(self, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]] | None) -> None:
        self._content = (key, value, headers)

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 42

    def key(self) -> bytes | None:
        return self._content[0]

    def value(self) -> bytes | None:
        return self._content[1]

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self._content[2]

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000


def message(key: bytes | None, value: bytes | None, headers: Any = None) -> Any:
    return Consumed(key, value, headers)


def test_every_field_of_a_format_is_filled_in() -> None:
    render = parse_format(r"%t %p %o %k %s %T %h %S %K%%\n")
    assert render(message(b"k1", b"value", [("a", b"1"), ("b", None)])) == (
        b"orders 3 42 k1 value 1700000000000 a=1,b= 5 2%\n"
    )


def test_null_is_empty_text_with_size_minus_one() -> None:
    assert parse_format("[%k][%s] %K %S")(message(None, None)) == b"[][] -1 -1"


def test_bytes_pass_through_a_format_unchanged() -> None:
    assert parse_format("%s")(message(None, b"\xff\x00%s\\n")) == b"\xff\x00%s\\n"


def test_an_escaped_backslash_before_a_field_stays_a_backslash() -> None:
    assert parse_format(r"\\%p")(message(None, None)) == b"\\3"


@pytest.mark.parametrize("text", ["%q", "100%", "%"])
def test_an_unknown_field_is_named_with_those_there_are(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a field: use %t %p"):
        parse_format(text)


def test_json_is_one_object_on_one_line() -> None:
    line = json_line(message(b"k", "zwölf\n".encode(), [("a", b"1")]))
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp": 1_700_000_000_000,
        "timestamp_type": "create",
        "key": "k",
        "value": "zwölf\n",
        "headers": [{"name": "a", "value": "1"}],
    }


def test_bytes_that_are_not_utf8_are_base64_and_say_so() -> None:
    document = json.loads(json_line(message(b"\xff", b"\xfe", [("h", b"\xfd")])))
    assert (document["key"], document["key_encoding"]) == ("/w==", "base64")
    assert (document["value"], document["value_encoding"]) == ("/g==", "base64")
    assert document["headers"] == [{"name": "h", "value": "/Q==", "value_encoding": "base64"}]


def test_null_stays_null_in_json() -> None:
    document = json.loads(json_line(message(None, None)))
    assert document["key"] is None
    assert document["value"] is None
