"""The records of consumer groups (KIP-848) in `__consumer_offsets`, in Kafka's own format.

Keys are in the older encoding (int16 type, then int16-length strings), values in the flexible one (version 0 as int16,
varint lengths, tagged fields at the end). `parts` below is [topic_id: uuid, partitions: [int32]].

    key 3   group             epoch: int32, tag 0: metadata_hash: int64                       the group
    key 5   group, member     instance_id?, rack?, client_id, client_host, topics: [string], pattern?,
                              rebalance_timeout_ms: int32, assignor?, tag 0: classic?          a member's subscription
                              classic: session_timeout_ms: int32, protocols: [name, metadata: bytes]
    key 6   group             epoch: int32, tag 0: assigned_ms: int64                          the plan
    key 7   group, member     parts                                                            a member's part of it
    key 8   group, member     epoch: int32, previous_epoch: int32, state: int8, assigned: parts, revoking: parts,
                              each of the parts with tag 0: [int32], the epochs in which its partitions were given
    key 16  group, pattern    topics: [string], version: int64, resolved_ms: int64             what a pattern stands for

Pure functions; called by `records.py` and by drafts of consumer groups. (Key 4 is what Kafka had before the hash.)
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec import Struct

from headrace.coordinators.groups.reconciliation import CurrentAssignment, Held, MemberState, Parts
from headrace.coordinators.record_fields import Cursor, compact_string, string, tagged, varint
from headrace.wire.errors import Malformed

_WHAT = "a consumer group"
_VERSION = b"\x00\x00"
_NO_TAGS = b"\x00"
T = TypeVar("T")


class ConsumerKey(Struct, frozen=True):
    """The key of one record: its type, its group, and the member or pattern it is about."""

    type: int
    group_id: str
    name: str | None = None


EPOCH, SUBSCRIPTION, PLAN, TARGET, CURRENT, PATTERN = 3, 5, 6, 7, 8, 16
OF_THE_GROUP = (EPOCH, PLAN)
OF_A_NAME = (SUBSCRIPTION, TARGET, CURRENT, PATTERN)


class GroupEpoch(Struct, frozen=True):
    epoch: int
    metadata_hash: int  # of the topics that the group subscribes to


class ClassicFacet(Struct, frozen=True):
    """What a member that speaks the classic protocol has beside its subscription."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class Subscription(Struct, frozen=True):
    """What a member says of itself."""

    client_id: str
    client_host: str
    instance_id: str | None = None
    rack: str | None = None
    topics: tuple[str, ...] = ()  # sorted
    pattern: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicFacet | None = None  # set: it speaks the classic protocol


class PlanEpoch(Struct, frozen=True):
    epoch: int
    assigned_ms: int


class ResolvedPattern(Struct, frozen=True):
    topics: frozenset[str]
    version: int  # of the cluster's metadata
    resolved_ms: int


Value = GroupEpoch | Subscription | PlanEpoch | Parts | CurrentAssignment | ResolvedPattern

# --- writing --------------------------------------------------------------------------------------------------------


def consumer_key(key: ConsumerKey) -> bytes:
    name = b"" if key.name is None else string(key.name)
    return struct.pack(">h", key.type) + string(key.group_id) + name


def consumer_value(value: Value) -> bytes:
    if isinstance(value, GroupEpoch):
        body = struct.pack(">i", value.epoch) + tagged({0: struct.pack(">q", value.metadata_hash)})
    elif isinstance(value, Subscription):
        body = _subscription(value)
    elif isinstance(value, PlanEpoch):
        body = struct.pack(">i", value.epoch) + tagged({0: struct.pack(">q", value.assigned_ms)})
    elif isinstance(value, CurrentAssignment):
        body = struct.pack(">iib", value.epoch, value.previous_epoch, value.state)
        body += array(_held(value.assigned)) + array(_held(value.revoking)) + _NO_TAGS
    elif isinstance(value, ResolvedPattern):
        body = array(map(compact_string, sorted(value.topics)))
        body += struct.pack(">qq", value.version, value.resolved_ms) + _NO_TAGS
    else:
        body = array(parts_items(value)) + _NO_TAGS
    return _VERSION + body


def _subscription(value: Subscription) -> bytes:
    parts = [compact_optional(value.instance_id), compact_optional(value.rack)]
    parts += [compact_string(value.client_id), compact_string(value.client_host)]
    parts += [array(map(compact_string, value.topics)), compact_optional(value.pattern)]
    parts += [struct.pack(">i", value.rebalance_timeout_ms), compact_optional(value.assignor)]
    tags = {}
    if value.classic is not None:
        protocols = (
            compact_string(name) + varint(len(raw) + 1) + raw + _NO_TAGS for name, raw in value.classic.protocols
        )
        present = b"\x01"
        tags[0] = present + struct.pack(">i", value.classic.session_timeout_ms) + array(protocols) + _NO_TAGS
    return b"".join(parts) + tagged(tags)


def compact_optional(text: str | None) -> bytes:
    return b"\x00" if text is None else compact_string(text)


def array(items: Iterable[bytes]) -> bytes:
    parts = list(items)
    return varint(len(parts) + 1) + b"".join(parts)


def integers(numbers: list[int]) -> bytes:
    return varint(len(numbers) + 1) + struct.pack(f">{len(numbers)}i", *numbers)


def parts_items(parts: Parts) -> Iterable[bytes]:
    for topic_id, partitions in parts.items():
        yield topic_id.bytes + integers(sorted(partitions)) + _NO_TAGS


def _held(held: Held) -> Iterable[bytes]:
    for topic_id, epochs in held.items():
        partitions = sorted(epochs)
        yield topic_id.bytes + integers(partitions) + tagged({0: integers([epochs[p] for p in partitions])})


# --- reading --------------------------------------------------------------------------------------------------------


def read_consumer_key(raw: bytes) -> ConsumerKey | None:
    """None: a record of another kind."""
    cursor = Cursor(raw, _WHAT)
    kind = cursor.number("h")
    if kind in OF_THE_GROUP:
        return ConsumerKey(kind, cursor.string())
    return ConsumerKey(kind, cursor.string(), cursor.string()) if kind in OF_A_NAME else None


def read_consumer_value(kind: int, raw: bytes) -> Value:
    cursor = Cursor(raw, _WHAT)
    cursor.version((0,))
    return _READERS[kind](cursor)


def _read_epoch(cursor: Cursor) -> GroupEpoch:
    return GroupEpoch(cursor.number("i"), _int64(cursor.tagged().get(0)))


def _read_plan(cursor: Cursor) -> PlanEpoch:
    return PlanEpoch(cursor.number("i"), _int64(cursor.tagged().get(0)))


def _int64(raw: bytes | None) -> int:
    return 0 if raw is None else Cursor(raw, _WHAT).number("q")


def _read_subscription(cursor: Cursor) -> Subscription:
    instance_id, rack = cursor.compact_optional(), cursor.compact_optional()
    client_id, client_host = cursor.compact_string(), cursor.compact_string()
    topics = tuple(read_array(cursor, Cursor.compact_string))
    pattern, timeout_ms, assignor = cursor.compact_optional(), cursor.number("i"), cursor.compact_optional()
    classic, raw = None, cursor.tagged().get(0)
    if raw is not None:
        inner = Cursor(raw, _WHAT)
        if inner.number("b") > 0:
            session_timeout_ms = inner.number("i")
            classic = ClassicFacet(session_timeout_ms, tuple(read_array(inner, _read_protocol)))
    return Subscription(client_id, client_host, instance_id, rack, topics, pattern, timeout_ms, assignor, classic)


def _read_protocol(cursor: Cursor) -> tuple[str, bytes]:
    protocol = cursor.compact_string(), cursor.take(cursor.varint() - 1)
    cursor.tagged()
    return protocol


def _read_current(cursor: Cursor) -> CurrentAssignment:
    epoch, previous_epoch, number = cursor.number("i"), cursor.number("i"), cursor.number("b")
    try:
        state = MemberState(number)
    except ValueError:
        raise Malformed(f"a record of {_WHAT} has a member in state {number}") from None
    assigned = dict(read_array(cursor, lambda inner: _read_held(inner, epoch)))
    revoking = dict(read_array(cursor, lambda inner: _read_held(inner, epoch)))
    return CurrentAssignment(epoch, previous_epoch, state, assigned, revoking)


def _read_held(cursor: Cursor, epoch: int) -> tuple[uuid.UUID, dict[int, int]]:
    """Where no epochs are told, the member's own stands for them."""
    topic_id, partitions = uuid.UUID(bytes=cursor.take(16)), read_integers(cursor)
    raw = cursor.tagged().get(0)
    epochs = read_integers(Cursor(raw, _WHAT)) if raw is not None else [epoch] * len(partitions)
    if len(epochs) != len(partitions):
        raise Malformed(f"a record of {_WHAT} has {len(epochs)} epochs for {len(partitions)} partitions")
    return topic_id, dict(zip(partitions, epochs, strict=True))


def _read_target(cursor: Cursor) -> Parts:
    return dict(read_array(cursor, read_parts))


def read_parts(cursor: Cursor) -> tuple[uuid.UUID, frozenset[int]]:
    parts = uuid.UUID(bytes=cursor.take(16)), frozenset(read_integers(cursor))
    cursor.tagged()
    return parts


def _read_pattern(cursor: Cursor) -> ResolvedPattern:
    topics = frozenset(read_array(cursor, Cursor.compact_string))
    return ResolvedPattern(topics, cursor.number("q"), cursor.number("q"))


def read_array(cursor: Cursor, read: Callable[[Cursor], T]) -> list[T]:
    return [read(cursor) for _ in range(cursor.varint() - 1)]


def read_integers(cursor: Cursor) -> list[int]:
    count = max(cursor.varint() - 1, 0)
    return list(struct.unpack(f">{count}i", cursor.take(4 * count)))


_READERS: dict[int, Callable[[Cursor], Value]] = {
    EPOCH: _read_epoch,
    SUBSCRIPTION: _read_subscription,
    PLAN: _read_plan,
    TARGET: _read_target,
    CURRENT: _read_current,
    PATTERN: _read_pattern,
}
