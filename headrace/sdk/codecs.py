"""What a program's values look like as bytes: bytes as they are, text, JSON, or whatever a program plugs in.

A codec is any object with `encode` and `decode`. It sees values only; null (a tombstone) passes every codec as None,
and the broker copies the bytes and changes nothing.
"""

from __future__ import annotations

import json
from typing import Any, Literal, Protocol, runtime_checkable

from headrace.sdk.errors import BadSetting

CodecName = Literal["bytes", "text", "json"]


@runtime_checkable
class Codec(Protocol):
    """The hook: both ways between a value of the program and the bytes of a message."""

    def encode(self, value: Any) -> bytes: ...

    def decode(self, data: bytes) -> Any: ...


class BytesCodec:
    """Bytes as they are. Text is taken too, as UTF-8; what is read are bytes."""

    def encode(self, value: Any) -> bytes:
        if type(value) is bytes:
            return value
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        raise TypeError(f"a value of the bytes codec is bytes or text, not {type(value).__name__}")

    def decode(self, data: bytes) -> bytes:
        return data


class TextCodec:
    """Text as UTF-8."""

    def encode(self, value: Any) -> bytes:
        if isinstance(value, str):
            return value.encode()
        raise TypeError(f"a value of the text codec is text, not {type(value).__name__}")

    def decode(self, data: bytes) -> str:
        return data.decode()


class JsonCodec:
    """JSON as UTF-8, without blanks. NaN and infinity are refused: other readers do not know them."""

    def encode(self, value: Any) -> bytes:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

    def decode(self, data: bytes) -> Any:
        return json.loads(data)


_NAMED: dict[str, Codec] = {"bytes": BytesCodec(), "text": TextCodec(), "json": JsonCodec()}


def codec_of(choice: CodecName | Codec) -> Codec:
    """The codec that was chosen by name, or the one that was plugged in."""
    if isinstance(choice, str):
        if choice not in _NAMED:
            raise BadSetting(f"there is no codec {choice!r}: choose bytes, text or json, or hand in an object")
        return _NAMED[choice]
    if not isinstance(choice, Codec):
        raise BadSetting(f"{type(choice).__name__} is no codec: it needs encode(value) and decode(data)")
    return choice
