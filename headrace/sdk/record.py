"""Records to be written, and their conversion to the arguments of librdkafka's produce.

A transform of `exactly_once` returns a `Record` to set more than the value; `Producer.send` takes the same fields as
arguments. Pure: `outgoing` is the one place where values, keys, tags and ids become bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from headrace.sdk.codecs import Codec
from headrace.sdk.errors import BadMessage
from headrace.sdk.message import ID_HEADER, TAG_HEADER, Header

Key = bytes | str | int
ANY_PARTITION = -1


class Record(NamedTuple):
    """A message to be written. In `exactly_once`, `topic` and `key` default to `produce_to` and the input's key."""

    value: Any
    key: Key | None = None
    topic: str | None = None
    partition: int | None = None
    headers: Iterable[Header] = ()
    tags: Iterable[str] = ()
    id: str | None = None
    timestamp_ms: int | None = None
    delay: timedelta | None = None
    deliver_at: datetime | int | None = None
    cron: str | None = None
    cron_tz: str | None = None

    @property
    def is_delayed(self) -> bool:
        """Whether it is to be delivered later; cron_tz alone is a mistake that the check of the times reports."""
        return any(each is not None for each in (self.delay, self.deliver_at, self.cron, self.cron_tz))


def key_bytes(key: Key) -> bytes:
    """A key's bytes: text as UTF-8, an integer as Java's LongSerializer writes it (8 bytes, signed, big-endian)."""
    if isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, int) and not isinstance(key, bool):
        try:
            return key.to_bytes(8, "big", signed=True)
        except OverflowError:
            raise BadMessage(f"the key {key} does not fit into 8 bytes: use it as text") from None
    raise BadMessage(f"a key is bytes, text or an integer, not {type(key).__name__}")


Outgoing = tuple[str, bytes | None, bytes | None, int, Any, None, int, Any]
"""A message in the order in which librdkafka's produce takes it: topic, value, key, partition, callback, an old name of
callback, timestamp (0 is now), headers. A plain tuple, because one is made per message."""


def outgoing(
    codec: Codec,
    topic: str | None,
    value: Any,
    key: Key | None = None,
    partition: int | None = None,
    headers: Iterable[Header] = (),
    tags: Iterable[str] = (),
    message_id: str | None = None,
    timestamp_ms: int | None = None,
    callback: Callable[..., None] | None = None,
) -> Outgoing:
    """The arguments of librdkafka's produce for a record, with everything encoded."""
    if topic is None:
        raise BadMessage("the record has no topic: set Record.topic")
    if value is not None:
        try:
            value = codec.encode(value)
        except Exception as error:
            raise BadMessage(f"the codec cannot encode a value for {topic}: {error}") from error
    if key is not None:
        key = key_bytes(key)
    all_headers: list[Header] | None = None
    if headers or tags or message_id is not None:
        all_headers = [*headers, *_own_headers(tags, message_id)]
    if partition is None:
        partition = ANY_PARTITION
    return topic, value, key, partition, callback, None, timestamp_ms or 0, all_headers


def _own_headers(tags: Iterable[str], message_id: str | None) -> Iterable[Header]:
    for tag in tags:
        yield TAG_HEADER, tag.encode()
    if message_id is not None:
        yield ID_HEADER, message_id.encode()
