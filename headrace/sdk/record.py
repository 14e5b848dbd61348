"""What a program wants written, and the same as librdkafka takes it.

`Record` is what a transform of `exactly_once` returns when a bare value does not say enough; `Producer.send` takes the
same things as arguments. Pure: `outgoing` is the one place where values, keys, tags and ids become bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headrace.sdk.codecs import Codec
from headrace.sdk.errors import BadMessage
from headrace.sdk.message import ID_HEADER, TAG_HEADER, Header

Key = bytes | str | int


@dataclass(frozen=True, slots=True)
class Record:
    """A message to be written. `topic` and `key` default to what the surroundings say."""

    value: Any
    key: Key | None = None
    topic: str | None = None
    partition: int | None = None
    headers: tuple[Header, ...] = ()
    tags: tuple[str, ...] = ()
    id: str | None = None
    timestamp_ms: int | None = None


def key_bytes(key: Key | None) -> bytes | None:
    """A key's bytes: text as UTF-8, an integer as Java's LongSerializer writes it (8 bytes, signed, big-endian)."""
    if key is None or isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, int) and not isinstance(key, bool):
        try:
            return key.to_bytes(8, "big", signed=True)
        except OverflowError:
            raise BadMessage(f"the key {key} does not fit into 8 bytes: send it as text") from None
    raise BadMessage(f"a key is bytes, text or an integer, not {type(key).__name__}")


def outgoing(topic: str, record: Record, codec: Codec) -> dict[str, Any]:
    """The arguments of librdkafka's produce, without the partition."""
    arguments: dict[str, Any] = {"topic": topic, "key": key_bytes(record.key)}
    if record.value is not None:
        try:
            arguments["value"] = codec.encode(record.value)
        except Exception as error:
            raise BadMessage(f"the codec cannot encode a value for {topic}: {error}") from error
    if record.headers or record.tags or record.id is not None:
        arguments["headers"] = [*record.headers, *_own_headers(record.tags, record.id)]
    if record.timestamp_ms is not None:
        arguments["timestamp"] = record.timestamp_ms
    return arguments


def _own_headers(tags: Iterable[str], message_id: str | None) -> Iterable[Header]:
    for tag in tags:
        yield TAG_HEADER, tag.encode()
    if message_id is not None:
        yield ID_HEADER, message_id.encode()
