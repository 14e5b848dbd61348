"""The field types of the records in Kafka's internal topics, as bytes.

There are two encodings. In the older one a string has an int16 length, with -1 for null, and bytes have an int32
length. In the flexible one a length is a varint, one more than the size so that 0 is null, and tagged fields are at the
end. Pure functions, called by the modules that encode whole records. Invalid bytes raise Malformed and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from headrace.wire.errors import Malformed

_NUMBERS = {code: struct.Struct(">" + code) for code in "Bbhiq"}
_MAX_VARINT_BITS = 35


def string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def sized(raw: bytes) -> bytes:
    return struct.pack(">i", len(raw)) + raw


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def compact_string(text: str) -> bytes:
    raw = text.encode()
    return varint(len(raw) + 1) + raw


def tagged(fields: Mapping[int, bytes]) -> bytes:
    """The tagged fields at the end of a flexible record, by number."""
    parts = [varint(len(fields))]
    for tag in sorted(fields):
        parts += [varint(tag), varint(len(fields[tag])), fields[tag]]
    return b"".join(parts)


class Cursor:
    """Reads one record from its start; `what` names its kind in errors."""

    def __init__(self, raw: bytes, what: str) -> None:
        self._raw = raw
        self._at = 0
        self._what = what

    def number(self, code: str) -> int:
        packed = _NUMBERS[code]
        try:
            value: int = packed.unpack_from(self._raw, self._at)[0]
        except struct.error:
            raise Malformed(f"a record of {self._what} ends early") from None
        self._at += packed.size
        return value

    def take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._raw):
            raise Malformed(f"a record of {self._what} has a field of {size} bytes")
        raw = self._raw[self._at : self._at + size]
        self._at += size
        return raw

    def optional(self) -> str | None:
        size = self.number("h")
        return None if size < 0 else self._text(size)

    def string(self) -> str:
        return self._text(self.number("h"))

    def compact_string(self) -> str:
        return self._text(self.varint() - 1)

    def compact_optional(self) -> str | None:
        size = self.varint()
        return None if size == 0 else self._text(size - 1)

    def sized(self) -> bytes:
        return self.take(self.number("i"))

    def varint(self) -> int:
        value = 0
        for shift in range(0, _MAX_VARINT_BITS, 7):
            byte = self.number("B")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise Malformed(f"a record of {self._what} has a length that does not end")

    def tagged(self) -> dict[int, bytes]:
        """All tagged fields; the caller ignores unknown ones."""
        return {self.varint(): self.take(self.varint()) for _ in range(self.varint())}

    def version(self, known: tuple[int, ...]) -> int:
        found = self.number("h")
        if found not in known:
            words = " and ".join(map(str, known))
            raise Malformed(f"a record of {self._what} has version {found}, known here: {words}")
        return found

    def _text(self, size: int) -> str:
        try:
            return self.take(size).decode()
        except UnicodeDecodeError:
            raise Malformed(f"a record of {self._what} has a text that is not UTF-8") from None
