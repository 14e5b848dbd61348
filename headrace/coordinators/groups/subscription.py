"""The embedded consumer protocol: what Kafka's consumers write into the opaque bytes of the classic protocol.

    subscription  version: int16, topics: [string], user_data: bytes?
                  v1: owned: [topic: string, partitions: [int32]]   v2: generation: int32   v3: rack: string?
    assignment    version: int16, parts: [topic: string, partitions: [int32]], user_data: bytes?

Lengths are int16 for strings and int32 for everything else. Other kinds of groups (such as Connect) use other formats.
Pure functions; called by `group.py` (which topics are in use) and by `migration.py` and `classic_members.py` (classic
members in a consumer group).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from msgspec import Struct, field

from headrace.coordinators.record_fields import Cursor, string
from headrace.wire.errors import Malformed

CONSUMER = "consumer"
HIGHEST_VERSION = 3
_WHAT = "the embedded consumer protocol"


class EmbeddedSubscription(Struct, frozen=True):
    version: int
    topics: tuple[str, ...]
    owned: Mapping[str, frozenset[int]] = field(default_factory=dict)  # partitions by topic
    rack: str | None = None


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics, or None if the bytes have another format. All versions start in the same way."""
    try:
        _version, topics = _read_topics(Cursor(metadata, _WHAT))
    except Malformed:
        return None
    return frozenset(topics)


def read_subscription(metadata: bytes) -> EmbeddedSubscription:
    """Raises Malformed. Of an unknown later version, the known fields are read."""
    cursor = Cursor(metadata, _WHAT)
    version, topics = _read_topics(cursor)
    _skip_user_data(cursor)
    owned = _read_parts(cursor) if version >= 1 else {}
    if version >= 2:
        cursor.number("i")
    rack = (cursor.optional() or None) if version >= 3 else None  # librdkafka writes "" for none
    return EmbeddedSubscription(min(version, HIGHEST_VERSION), topics, owned, rack)


def read_assignment(raw: bytes) -> Mapping[str, frozenset[int]]:
    """Partitions by topic; raises Malformed."""
    cursor = Cursor(raw, _WHAT)
    if cursor.number("h") < 0:
        raise Malformed(f"{_WHAT} has a version below 0")
    return _read_parts(cursor)


def write_assignment(version: int, parts: Mapping[str, frozenset[int]]) -> bytes:
    out = [struct.pack(">hi", version, len(parts))]
    for topic, partitions in sorted(parts.items()):
        out += [string(topic), struct.pack(f">i{len(partitions)}i", len(partitions), *sorted(partitions))]
    return b"".join(out) + struct.pack(">i", -1)


def _read_topics(cursor: Cursor) -> tuple[int, tuple[str, ...]]:
    version = cursor.number("h")
    if version < 0:
        raise Malformed(f"{_WHAT} has a version below 0")
    return version, tuple(cursor.string() for _ in range(cursor.number("i")))


def _read_parts(cursor: Cursor) -> Mapping[str, frozenset[int]]:
    parts: dict[str, frozenset[int]] = {}
    for _ in range(cursor.number("i")):
        topic, count = cursor.string(), cursor.number("i")
        partitions = frozenset(struct.unpack(f">{max(count, 0)}i", cursor.take(4 * count)))
        if partitions:
            parts[topic] = parts.get(topic, frozenset()) | partitions
    return parts


def _skip_user_data(cursor: Cursor) -> None:
    size = cursor.number("i")
    if size > 0:
        cursor.take(size)
