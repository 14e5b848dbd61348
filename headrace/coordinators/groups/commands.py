"""The commands of the group coordinator, and their replies.

Handlers translate requests into commands and replies into responses; the runtime passes them on; the shard decides.
Commands that only timers send are at the end.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from msgspec import Struct

from headrace.model.topic_partition import TopicPartition
from headrace.wire.errors import ErrorCode

NO_ERROR = ErrorCode.none


class Join(Struct, frozen=True):
    group_id: str
    member_id: str  # empty: a new member
    instance_id: str | None  # set: a static member (KIP-345)
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]  # (name, metadata), the preferred one first
    needs_member_id: bool  # a new member must join again with an id (KIP-394)
    can_skip_assignment: bool  # a static leader that comes back understands `skip_assignment` (KIP-814)


class JoinReply(Struct, frozen=True):
    error: ErrorCode = NO_ERROR
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()  # (member, instance, metadata), for the leader only
    skip_assignment: bool = False


class Sync(Struct, frozen=True):
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]  # by member, from the leader only


class SyncReply(Struct, frozen=True):
    error: ErrorCode = NO_ERROR
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Heartbeat(Struct, frozen=True):
    """Answered with an ErrorCode."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int


class Leave(Struct, frozen=True):
    """Answered with one ErrorCode for each of `members`: (member id, instance id)."""

    group_id: str
    members: tuple[tuple[str, str | None], ...]


class OffsetToCommit(Struct, frozen=True):
    topic: str
    topic_id: uuid.UUID
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class CommitOffsets(Struct, frozen=True):
    """Answered with one ErrorCode for each of `offsets`."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    offsets: tuple[OffsetToCommit, ...]
    knows_consumer_groups: bool = True  # the request has a version of KIP-848 or later


class CommittedOffset(Struct, frozen=True):
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    topic_id: uuid.UUID  # an offset is not valid for a later topic of the same name


UNSTABLE = CommittedOffset(-1, -1, "", -1, uuid.UUID(int=0))


class CommitInTransaction(Struct, frozen=True):
    """Answered with one ErrorCode for each of `offsets`; they take effect when the producer's transaction commits."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    producer_id: int
    producer_epoch: int
    offsets: tuple[OffsetToCommit, ...]


class FetchOffsets(Struct, frozen=True):
    """Answered with {(topic, partition): CommittedOffset}, without partitions that have no offset; or with an ErrorCode
    if the member id or epoch of a consumer group's member is wrong."""

    group_id: str
    partitions: tuple[TopicPartition, ...] | None  # None: all
    require_stable: bool = False  # UNSTABLE in place of an offset that an open transaction may change
    member_id: str | None = None  # set: only if this member of a consumer group
    member_epoch: int = -1  # is in this epoch


class DeleteOffsets(Struct, frozen=True):
    """Answered with one ErrorCode for each of `partitions`, or with one about the group as a whole."""

    group_id: str
    partitions: tuple[TopicPartition, ...]


class ListGroups(Struct, frozen=True):
    """Answered with a list of GroupListing."""


class GroupListing(Struct, frozen=True):
    group_id: str
    protocol_type: str
    state: str
    member_count: int
    kind: str = "classic"


class DescribeGroup(Struct, frozen=True):
    """Answered with a GroupDescription, or with a message that says why there is none."""

    group_id: str


class MemberDescription(Struct, frozen=True):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(Struct, frozen=True):
    state: str
    protocol_type: str
    protocol: str
    members: tuple[MemberDescription, ...]


class DeleteGroup(Struct, frozen=True):
    """Answered with an ErrorCode, or with StatesInTheWay: see `GroupCoordinator.finish_deletion`."""

    group_id: str


class ForgetTopic(Struct, frozen=True):
    """A topic was deleted: remove its offsets, but not those of a new topic of this name. Not answered."""

    topic: str


# --- from timers ----------------------------------------------------------------------------------------------------


class SessionExpired(Struct, frozen=True):
    """The session of a member, or of a client that was given a member id, has expired."""

    group_id: str
    member_id: str


class JoinTimeUp(Struct, frozen=True):
    """The rebalance timeout is over: the group continues with the members that have joined again."""

    group_id: str


class InitialDelayOver(Struct, frozen=True):
    """The initial delay is over. If members joined during it, the group waits again, up to `remaining_ms`."""

    group_id: str
    remaining_ms: int


class SyncTimeUp(Struct, frozen=True):
    """Members that joined a generation but never sent SyncGroup are removed."""

    group_id: str
    generation: int


class ExpireOffsets(Struct, frozen=True):
    """Time to look for expired offsets, in these groups, or in all if None."""

    groups: tuple[str, ...] | None = None
