"""Formats consumed messages: with kcat's format strings, or as one JSON object per line.

Called by consume. Invariant: a format string writes keys and values as raw bytes; JSON is always valid UTF-8, and other
bytes are marked by an extra field (`"value_encoding": "base64"`).
"""

import base64
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from headrace.cli.options import unescape

if TYPE_CHECKING:
    from confluent_kafka import Message

Renderer = Callable[["Message"], bytes]

NO_TIMESTAMP = 0  # confluent_kafka.TIMESTAMP_NOT_AVAILABLE, without loading the client
APPEND_TIMESTAMP = 2


def number(value: int | None) -> bytes:
    return str(value).encode()


def size(value: bytes | None) -> bytes:
    """The length of a key or value; -1 for null."""
    return str(-1 if value is None else len(value)).encode()


def timestamp_ms(message: "Message") -> int:
    kind, moment_ms = message.timestamp()
    return -1 if kind == NO_TIMESTAMP else moment_ms


def header_pairs(message: "Message") -> list[tuple[str, bytes | None]]:
    headers: Any = message.headers() or []
    return list(headers)


def headers_text(message: "Message") -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in header_pairs(message))


FIELDS: dict[str, Renderer] = {
    "t": lambda message: (message.topic() or "").encode(),
    "p": lambda message: number(message.partition()),
    "o": lambda message: number(message.offset()),
    "k": lambda message: message.key() or b"",
    "s": lambda message: message.value() or b"",
    "T": lambda message: number(timestamp_ms(message)),
    "h": headers_text,
    "S": lambda message: size(message.value()),
    "K": lambda message: size(message.key()),
}


def parse_format(text: str) -> Renderer:
    """A renderer for a format string; %% is a percent sign, escapes are those of `unescape`."""
    parts: list[Renderer] = []
    literal = ""
    position = 0
    while position < len(text):
        if text[position] != "%":
            # A backslash is kept with the next character, so that \\ before % is an escape of its own.
            step = 2 if text[position] == "\\" else 1
            literal += text[position : position + step]
            position += step
            continue
        name = text[position + 1 : position + 2]
        if name == "%":
            literal += "%"
        elif name in FIELDS:
            parts += [constant(unescape(literal)), FIELDS[name]]
            literal = ""
        else:
            raise typer.BadParameter(f"%{name} in {text!r} is not a field: use %{' %'.join(FIELDS)} or %%")
        position += 2
    parts.append(constant(unescape(literal)))
    return lambda message: b"".join([part(message) for part in parts])


def constant(text: str) -> Renderer:
    content = text.encode()
    return lambda _message: content


def json_line(message: "Message") -> bytes:
    kind, _ = message.timestamp()
    document: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp_ms(message),
        "timestamp_type": "append" if kind == APPEND_TIMESTAMP else "create",
    }
    put_bytes(document, "key", message.key())
    put_bytes(document, "value", message.value())
    document["headers"] = [header_document(name, value) for name, value in header_pairs(message)]
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def header_document(name: str, value: bytes | None) -> dict[str, Any]:
    document: dict[str, Any] = {"name": name}
    put_bytes(document, "value", value)
    return document


def put_bytes(document: dict[str, Any], name: str, content: bytes | None) -> None:
    try:
        document[name] = None if content is None else content.decode()
    except UnicodeDecodeError:
        document[name] = base64.b64encode(content or b"").decode()
        document[f"{name}_encoding"] = "base64"
