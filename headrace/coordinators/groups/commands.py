"""What can be asked of the group coordinator, and what it answers.

Handlers translate requests into these and replies back; the runtime carries them; the shard decides them. Commands
that only timers send stand at the end.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.wire.errors import ErrorCode

NO_ERROR = ErrorCode.none


@dataclass(frozen=True, slots=True)
class Join:
    group_id: str
    member_id: str  # empty: somebody new
    instance_id: str | None  # set: a static member (KIP-345)
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]  # (name, metadata), the preferred one first
    needs_member_id: bool  # somebody new must come again with an id (KIP-394)
    can_skip_assignment: bool  # a static leader that comes back understands `skip_assignment` (KIP-814)


@dataclass(frozen=True, slots=True)
class JoinReply:
    error: ErrorCode = NO_ERROR
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()  # (member, instance, metadata), for the leader only
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Sync:
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]  # by member, from the leader only


@dataclass(frozen=True, slots=True)
class SyncReply:
    error: ErrorCode = NO_ERROR
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Answered with an ErrorCode."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Answered with one ErrorCode for each of `members`: (member id, instance id)."""

    group_id: str
    members: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    topic: str
    topic_id: uuid.UUID
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Answered with one ErrorCode for each of `offsets`."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    offsets: tuple[OffsetToCommit, ...]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    topic_id: uuid.UUID  # an offset means nothing for another topic that later got the same name


UNSTABLE = CommittedOffset(-1, -1, "", -1, uuid.UUID(int=0))


@dataclass(frozen=True, slots=True)
class CommitInTransaction:
    """Answered with one ErrorCode for each of `offsets`: they count when the producer's transaction is committed."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    producer_id: int
    producer_epoch: int
    offsets: tuple[OffsetToCommit, ...]


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """Answered with {(topic, partition): CommittedOffset}, or with an ErrorCode when a member of a consumer group asks
    that is not what it says; partitions without an offset are not in it."""

    group_id: str
    partitions: tuple[tuple[str, int], ...] | None  # None: all
    require_stable: bool = False  # UNSTABLE in place of an offset that an open transaction may change
    member_id: str | None = None  # set: only if this member of a consumer group
    member_epoch: int = -1  # is in this epoch


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """Answered with one ErrorCode for each of `partitions`, or with one for all."""

    group_id: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ListGroups:
    """Answered with a list of GroupListing."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    protocol_type: str
    state: str
    member_count: int
    kind: str = "classic"


@dataclass(frozen=True, slots=True)
class DescribeGroup:
    """Answered with a GroupDescription, or None when there is no such group."""

    group_id: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    state: str
    protocol_type: str
    protocol: str
    members: tuple[MemberDescription, ...]


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Answered with an ErrorCode."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ForgetTopic:
    """A topic was deleted: its offsets go, but not those of a new topic of this name. Not answered."""

    topic: str


# --- from timers ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionExpired:
    """A member, or somebody who was given a member id, was silent for too long."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class JoinTimeUp:
    """The group goes on with the members that have joined again."""

    group_id: str


@dataclass(frozen=True, slots=True)
class InitialDelayOver:
    """A new group has waited for its first members; it waits on, up to `remaining_ms`, when some came meanwhile."""

    group_id: str
    remaining_ms: int


@dataclass(frozen=True, slots=True)
class SyncTimeUp:
    """Members that joined a generation and never asked for their part are put out."""

    group_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class ExpireOffsets:
    """Time to look for offsets that nobody will come back for."""
