"""The records of share groups (KIP-932) in `__consumer_offsets`, in Kafka's own format.

Keys are in the older encoding (int16 type, then int16-length strings), values in the flexible one (version 0 as int16,
varint lengths, tagged fields at the end). `parts` below is [topic_id: uuid, partitions: [int32]], `topics` is
[topic_id: uuid, name: string, partitions: [int32]].

    key 10  group, member     rack?, client_id, client_host, topics: [string]                  a member's subscription
    key 11  group             epoch: int32, metadata_hash: int64                               the group
    key 12  group             epoch: int32                                                     the plan
    key 13  group, member     parts                                                            a member's part of it
    key 14  group, member     epoch: int32, previous_epoch: int32, state: int8, assigned: parts
    key 15  group             initializing: topics, initialized: topics, deleting: [topic_id: uuid, name: string]
                              which share partitions have state at the share coordinator

A topic that is being deleted has its partitions in tag 0, which Kafka's readers skip: it may be gone from the cluster
when its state is. Pure functions; called by `records.py` and by `share_group.py`.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, field

from headrace.coordinators.groups.consumer_records import (
    ConsumerKey,
    GroupEpoch,
    array,
    compact_optional,
    integers,
    parts_items,
    read_array,
    read_integers,
    read_parts,
)
from headrace.coordinators.groups.reconciliation import MemberState, Parts
from headrace.coordinators.record_fields import Cursor, compact_string, tagged
from headrace.wire.errors import Malformed

_WHAT = "a share group"
_VERSION = b"\x00\x00"
_NO_TAGS = b"\x00"

SHARE_MEMBER, SHARE_EPOCH, SHARE_PLAN, SHARE_TARGET, SHARE_CURRENT, SHARE_STATES = 10, 11, 12, 13, 14, 15
SHARE_KINDS = (SHARE_MEMBER, SHARE_EPOCH, SHARE_PLAN, SHARE_TARGET, SHARE_CURRENT, SHARE_STATES)
_OF_A_MEMBER = (SHARE_MEMBER, SHARE_TARGET, SHARE_CURRENT)


class ShareMember(Struct, frozen=True):
    """What a member says of itself."""

    client_id: str
    client_host: str
    rack: str | None = None
    topics: tuple[str, ...] = ()  # sorted


class SharePlanEpoch(Struct, frozen=True):
    epoch: int


class ShareCurrent(Struct, frozen=True):
    """What a member was told to have. Nobody waits for anybody, so it is always the member's part of a plan."""

    epoch: int = 0
    previous_epoch: int = 0
    assigned: Parts = field(default_factory=dict)


class TopicStates(Struct, frozen=True):
    name: str
    partitions: frozenset[int]


class SharedTopics(Struct, frozen=True):
    """The topics of which a share group has state, or will have, or had, by topic id. A topic may be in two of them:
    when it grows, and when its state is deleted while a part of it was never initialized."""

    initializing: Mapping[uuid.UUID, TopicStates] = field(default_factory=dict)
    initialized: Mapping[uuid.UUID, TopicStates] = field(default_factory=dict)
    deleting: Mapping[uuid.UUID, TopicStates] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.initializing or self.initialized or self.deleting)


ShareValue = ShareMember | GroupEpoch | SharePlanEpoch | Parts | ShareCurrent | SharedTopics

# --- writing --------------------------------------------------------------------------------------------------------


def share_value(value: ShareValue) -> bytes:
    if isinstance(value, ShareMember):
        body = compact_optional(value.rack) + compact_string(value.client_id) + compact_string(value.client_host)
        body += array(map(compact_string, value.topics)) + _NO_TAGS
    elif isinstance(value, GroupEpoch):
        body = struct.pack(">iq", value.epoch, value.metadata_hash) + _NO_TAGS
    elif isinstance(value, SharePlanEpoch):
        body = struct.pack(">i", value.epoch) + _NO_TAGS
    elif isinstance(value, ShareCurrent):
        body = struct.pack(">iib", value.epoch, value.previous_epoch, MemberState.STABLE)
        body += array(parts_items(value.assigned)) + _NO_TAGS
    elif isinstance(value, SharedTopics):
        body = array(_topics(value.initializing)) + array(_topics(value.initialized))
        body += array(_deleting(value.deleting)) + _NO_TAGS
    else:
        body = array(parts_items(value)) + _NO_TAGS
    return _VERSION + body


def _topics(topics: Mapping[uuid.UUID, TopicStates]) -> Iterable[bytes]:
    for topic_id, topic in topics.items():
        yield topic_id.bytes + compact_string(topic.name) + integers(sorted(topic.partitions)) + _NO_TAGS


def _deleting(topics: Mapping[uuid.UUID, TopicStates]) -> Iterable[bytes]:
    for topic_id, topic in topics.items():
        yield topic_id.bytes + compact_string(topic.name) + tagged({0: integers(sorted(topic.partitions))})


# --- reading --------------------------------------------------------------------------------------------------------


def read_share_key(raw: bytes) -> ConsumerKey | None:
    """None: a record of another kind."""
    cursor = Cursor(raw, _WHAT)
    kind = cursor.number("h")
    if kind not in SHARE_KINDS:
        return None
    return ConsumerKey(kind, cursor.string(), cursor.string() if kind in _OF_A_MEMBER else None)


def read_share_value(kind: int, raw: bytes) -> ShareValue:
    cursor = Cursor(raw, _WHAT)
    cursor.version((0,))
    return _READERS[kind](cursor)


def _read_member(cursor: Cursor) -> ShareMember:
    rack, client_id, client_host = cursor.compact_optional(), cursor.compact_string(), cursor.compact_string()
    return ShareMember(client_id, client_host, rack, tuple(read_array(cursor, Cursor.compact_string)))


def _read_epoch(cursor: Cursor) -> GroupEpoch:
    return GroupEpoch(cursor.number("i"), cursor.number("q"))


def _read_plan(cursor: Cursor) -> SharePlanEpoch:
    return SharePlanEpoch(cursor.number("i"))


def _read_target(cursor: Cursor) -> Parts:
    return dict(read_array(cursor, read_parts))


def _read_current(cursor: Cursor) -> ShareCurrent:
    epoch, previous_epoch = cursor.number("i"), cursor.number("i")
    cursor.number("b")
    return ShareCurrent(epoch, previous_epoch, dict(read_array(cursor, read_parts)))


def _read_states(cursor: Cursor) -> SharedTopics:
    initializing, initialized = dict(read_array(cursor, _read_topic)), dict(read_array(cursor, _read_topic))
    return SharedTopics(initializing, initialized, dict(read_array(cursor, _read_deleting)))


def _read_topic(cursor: Cursor) -> tuple[uuid.UUID, TopicStates]:
    topic_id, name = uuid.UUID(bytes=cursor.take(16)), cursor.compact_string()
    partitions = frozenset(read_integers(cursor))
    cursor.tagged()
    return topic_id, TopicStates(name, partitions)


def _read_deleting(cursor: Cursor) -> tuple[uuid.UUID, TopicStates]:
    topic_id, name, raw = uuid.UUID(bytes=cursor.take(16)), cursor.compact_string(), cursor.tagged().get(0)
    if raw is None:
        raise Malformed(f"a record of {_WHAT} does not say which partitions of {name} are being deleted")
    return topic_id, TopicStates(name, frozenset(read_integers(Cursor(raw, _WHAT))))


_READERS: dict[int, Callable[[Cursor], ShareValue]] = {
    SHARE_MEMBER: _read_member,
    SHARE_EPOCH: _read_epoch,
    SHARE_PLAN: _read_plan,
    SHARE_TARGET: _read_target,
    SHARE_CURRENT: _read_current,
    SHARE_STATES: _read_states,
}
