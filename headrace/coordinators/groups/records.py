"""The records of `__consumer_offsets`, in Kafka's own format, so that Kafka's tools read them.

Every key and value starts with a version (int16); strings have an int16 length, bytes an int32 length, -1 for null.
An offset's value is in Kafka's flexible encoding: its string has the length plus one as a varint, and at the end stands
the one tagged field.

    key 1    group, topic: string, partition: int32                                    an offset
    value 4  offset: int64, leader_epoch: int32, metadata: string, commit_ms: int64, tag 0: topic_id: uuid
    key 2    group: string                                                             a group's members
    value 3  protocol_type: string, generation: int32, protocol: string?, leader: string?, state_ms: int64,
             members: [member_id: string, instance_id: string?, client_id: string, client_host: string,
                       rebalance_timeout_ms: int32, session_timeout_ms: int32, subscription: bytes, assignment: bytes]

A key without a value is a tombstone. Kafka reads these versions since 3.5. Pure functions; the groups shard is the only
caller.
"""

from __future__ import annotations

import struct
import uuid

from msgspec import Struct

from headrace.coordinators.groups.commands import CommittedOffset
from headrace.coordinators.groups.consumer_records import ConsumerKey, read_consumer_key
from headrace.coordinators.groups.share_records import read_share_key
from headrace.coordinators.record_fields import Cursor, compact_string, sized, string
from headrace.coordinators.shard import Record
from headrace.wire.errors import Malformed

OFFSET_KEY, GROUP_KEY = 1, 2
OFFSET_VALUE, GROUP_VALUE = 4, 3
_WHAT = "the group coordinator"
_TOPIC_ID_TAG = b"\x01\x00\x10"  # one tagged field, number 0, 16 bytes


class OffsetKey(Struct, frozen=True):
    group_id: str
    topic: str
    partition: int


class GroupKey(Struct, frozen=True):
    group_id: str


class StoredMember(Struct, frozen=True):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class StoredGroup(Struct, frozen=True):
    """A stable generation, or an empty group."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int  # when the group came into this state
    members: tuple[StoredMember, ...]


# --- writing --------------------------------------------------------------------------------------------------------


def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return struct.pack(">h", OFFSET_KEY) + string(group_id) + string(topic) + struct.pack(">i", partition)


def offset_record(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> Record:
    value = struct.pack(">hqi", OFFSET_VALUE, committed.offset, committed.leader_epoch)
    value += compact_string(committed.metadata) + struct.pack(">q", committed.commit_ms)
    value += _TOPIC_ID_TAG + committed.topic_id.bytes
    return _offset_key(group_id, topic, partition), value


def offset_tombstone(group_id: str, topic: str, partition: int) -> Record:
    return _offset_key(group_id, topic, partition), None


def group_record(group_id: str, group: StoredGroup) -> Record:
    parts = [
        struct.pack(">h", GROUP_VALUE),
        string(group.protocol_type),
        struct.pack(">i", group.generation),
        string(group.protocol),
        string(group.leader),
        struct.pack(">qi", group.state_ms, len(group.members)),
    ]
    for member in group.members:
        parts += [string(member.member_id), string(member.instance_id)]
        parts += [string(member.client_id), string(member.client_host)]
        parts.append(struct.pack(">ii", member.rebalance_timeout_ms, member.session_timeout_ms))
        parts += [sized(member.subscription), sized(member.assignment)]
    return struct.pack(">h", GROUP_KEY) + string(group_id), b"".join(parts)


def group_tombstone(group_id: str) -> Record:
    return struct.pack(">h", GROUP_KEY) + string(group_id), None


# --- reading --------------------------------------------------------------------------------------------------------


def read_key(raw: bytes) -> OffsetKey | GroupKey | ConsumerKey:
    cursor = Cursor(raw, _WHAT)
    version = cursor.number("h")
    if version == OFFSET_KEY:
        return OffsetKey(cursor.string(), cursor.string(), cursor.number("i"))
    if version == GROUP_KEY:
        return GroupKey(cursor.string())
    key = read_consumer_key(raw) or read_share_key(raw)
    if key is not None:
        return key
    raise Malformed(f"a record of the group coordinator has a key of type {version}, which is not known here")


def read_offset(raw: bytes) -> CommittedOffset:
    cursor = Cursor(raw, _WHAT)
    cursor.version((OFFSET_VALUE,))
    offset, leader_epoch = cursor.number("q"), cursor.number("i")
    metadata, commit_ms = cursor.compact_string(), cursor.number("q")
    if cursor.take(len(_TOPIC_ID_TAG)) != _TOPIC_ID_TAG:
        raise Malformed("a record of the group coordinator has an offset without the id of its topic")
    return CommittedOffset(offset, leader_epoch, metadata, commit_ms, uuid.UUID(bytes=cursor.take(16)))


def read_group(raw: bytes) -> StoredGroup:
    cursor = Cursor(raw, _WHAT)
    cursor.version((GROUP_VALUE,))
    protocol_type, generation = cursor.string(), cursor.number("i")
    protocol, leader, state_ms = cursor.optional(), cursor.optional(), cursor.number("q")
    members = tuple(_read_member(cursor) for _ in range(cursor.number("i")))
    return StoredGroup(protocol_type, generation, protocol, leader, state_ms, members)


def _read_member(cursor: Cursor) -> StoredMember:
    return StoredMember(
        member_id=cursor.string(),
        instance_id=cursor.optional(),
        client_id=cursor.string(),
        client_host=cursor.string(),
        rebalance_timeout_ms=cursor.number("i"),
        session_timeout_ms=cursor.number("i"),
        subscription=cursor.sized(),
        assignment=cursor.sized(),
    )
