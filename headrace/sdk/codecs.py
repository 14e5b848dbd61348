"""Codecs between a program's values and the bytes of a message: bytes, text, JSON, or the program's own.

A codec is any object with `encode` and `decode`. It sees values only: a null value (a tombstone) bypasses the codec as
None. The broker never decodes values.
"""

from __future__ import annotations

import json
from typing import Any, Literal, Protocol, runtime_checkable

from headrace.sdk.errors import BadSetting

CodecName = Literal["bytes", "text", "json"]


@runtime_checkable
class Codec(Protocol):
    """The interface of a codec."""

    def encode(self, value: Any) -> bytes: ...

    def decode(self, data: bytes) -> Any: ...


class BytesCodec:
    """Bytes unchanged. Text is accepted too and written as UTF-8; reading returns bytes."""

    def encode(self, value: Any) -> bytes:
        if type(value) is bytes:
            return value
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        raise TypeError(f"the bytes codec takes bytes or text, not {type(value).__name__}")

    def decode(self, data: bytes) -> bytes:
        return data


class TextCodec:
    """Text as UTF-8."""

    def encode(self, value: Any) -> bytes:
        if isinstance(value, str):
            return value.encode()
        raise TypeError(f"the text codec takes text, not {type(value).__name__}")

    def decode(self, data: bytes) -> str:
        return data.decode()


class JsonCodec:
    """JSON as UTF-8, without spaces. NaN and infinity are rejected, because they are not valid JSON."""

    def encode(self, value: Any) -> bytes:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

    def decode(self, data: bytes) -> Any:
        return json.loads(data)


_NAMED: dict[str, Codec] = {"bytes": BytesCodec(), "text": TextCodec(), "json": JsonCodec()}


def codec_of(choice: CodecName | Codec) -> Codec:
    """The codec of this name, or the given codec object itself."""
    if isinstance(choice, str):
        if choice not in _NAMED:
            raise BadSetting(f"there is no codec {choice!r}: choose bytes, text or json, or pass an object")
        return _NAMED[choice]
    if not isinstance(choice, Codec):
        raise BadSetting(f"{type(choice).__name__} is not a codec: it needs encode(value) and decode(data)")
    return choice
