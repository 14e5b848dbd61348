"""One message as a program reads it: topic, partition, offset, headers, and views of key and value.

Made by the consumer for what it reads and by the producer as the receipt of what it wrote; tests may make their own.
Invariant: `key` and `raw` are the stored bytes. The value is decoded on access, so one message that the codec cannot
decode does not fail its batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.sdk.codecs import Codec, codec_of
from headrace.sdk.errors import BadMessage
from headrace.wire.checksum import crc32c

TAG_HEADER = "headrace.tag"
ID_HEADER = "headrace.id"
INTEGER_BYTES = (1, 2, 4, 8)  # Java's byte, short, int and long serializers
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Header = tuple[str, bytes | None]


class Message:
    """A message of a topic."""

    __slots__ = ("_codec", "headers", "key", "offset", "partition", "raw", "timestamp_ms", "topic")

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        raw: bytes | None,
        key: bytes | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[Header] = (),
        codec: Codec | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.raw = raw
        """The value's bytes, or None for a tombstone."""
        self.key = key
        self.timestamp_ms = timestamp_ms
        self.headers = tuple(headers)
        self._codec = codec or codec_of("bytes")

    @property
    def value(self) -> Any:
        """The value, decoded by the codec; None for a tombstone."""
        if self.raw is None:
            return None
        try:
            return self._codec.decode(self.raw)
        except Exception as error:
            raise BadMessage(f"the codec cannot decode {self}: {error}; the bytes are in message.raw") from error

    @property
    def text(self) -> str:
        """The value as text, whatever the codec."""
        return self._as_text(self.raw or b"", "value")

    @property
    def key_text(self) -> str | None:
        """The key as text."""
        return None if self.key is None else self._as_text(self.key, "key")

    @property
    def key_int(self) -> int | None:
        """The key as an integer: signed, big-endian, of 1, 2, 4 or 8 bytes, as the Java serializers write it."""
        if self.key is None:
            return None
        if len(self.key) not in INTEGER_BYTES:
            raise BadMessage(f"the key of {self} has {len(self.key)} bytes: an integer has 1, 2, 4 or 8")
        return int.from_bytes(self.key, "big", signed=True)

    @property
    def timestamp(self) -> datetime | None:
        """When the message was created (or appended, with message.timestamp.type=LogAppendTime), in UTC."""
        return None if self.timestamp_ms is None else _EPOCH + timedelta(milliseconds=self.timestamp_ms)

    @property
    def id(self) -> str | None:
        """The unique id that its producer gave it: the header headrace.id."""
        data = self.header(ID_HEADER)
        return None if data is None else self._as_text(data, "id")

    @property
    def tags(self) -> tuple[str, ...]:
        """The values of its headrace.tag headers."""
        return tuple(self._as_text(data, "tag") for name, data in self.headers if name == TAG_HEADER and data)

    def header(self, name: str) -> bytes | None:
        """The value of the last header of that name; None if there is none."""
        return next((data for each, data in reversed(self.headers) if each == name), None)

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        in_headers = sum(len(name.encode()) + len(data or b"") for name, data in self.headers)
        return len(self.key or b"") + len(self.raw or b"") + in_headers

    @property
    def crc(self) -> int:
        """CRC32C of the key's and the value's bytes, computed now. (The stored checksum covers a whole batch.)"""
        checksum: int = crc32c(self.raw or b"", crc32c(self.key or b""))
        return checksum

    def on(self, topic: str, headers: Iterable[Header]) -> Message:
        """The same message under another topic's name, with other headers."""
        place = (topic, self.partition, self.offset)
        return Message(*place, self.raw, self.key, self.timestamp_ms, headers, self._codec)

    def _as_text(self, data: bytes, what: str) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise BadMessage(f"the {what} of {self} is not UTF-8 text: {error}") from error

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offset {self.offset}"

    def __repr__(self) -> str:
        return f"<Message {self}, {self.size} bytes>"
