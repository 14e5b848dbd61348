"""The commands of the group coordinator for share groups (KIP-932), their replies, and the work that they cause."""

from __future__ import annotations

import uuid

from msgspec import Struct

from headrace.coordinators.groups.reconciliation import Parts
from headrace.model.topic_partition import TopicPartition
from headrace.wire.errors import ErrorCode


class ShareHeartbeat(Struct, frozen=True):
    """Answered with a MembershipReply, at once or when the state of the member's topics is initialized."""

    group_id: str
    member_id: str  # made by the member
    epoch: int  # the member's; 0 to join, -1 to leave
    client_id: str
    client_host: str
    rack: str | None
    topics: tuple[str, ...] | None  # None: as before


class DescribeShareGroup(Struct, frozen=True):
    """Answered with a ShareGroupDescription."""

    group_id: str


class ShareMemberDescription(Struct, frozen=True):
    member_id: str
    rack: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    assignment: Parts


class ShareGroupDescription(Struct, frozen=True):
    """`error`: there is no such group, or it is of another type."""

    error: ErrorCode = ErrorCode.none
    message: str | None = None
    state: str = ""
    epoch: int = 0
    plan_epoch: int = 0
    assignor: str = "simple"
    members: tuple[ShareMemberDescription, ...] = ()


# --- states ---------------------------------------------------------------------------------------------------------


class StatesOf(Struct, frozen=True):
    """The states of partitions of one topic."""

    topic_id: uuid.UUID
    topic: str
    partitions: tuple[int, ...]


class ListStates(Struct, frozen=True):
    """Answered with a tuple of StatesOf, those that are initialized; or with an ErrorCode if there is no such share
    group."""

    group_id: str


class PrepareSeek(Struct, frozen=True):
    """Somebody wants to set start offsets. Answered with the state epoch for that, or with an ErrorCode about the
    group as a whole."""

    group_id: str


class StatesPut(Struct, frozen=True):
    """The states of these partitions were initialized on request. Answered with ErrorCode.none."""

    group_id: str
    places: tuple[TopicPartition, ...]


class PrepareForget(Struct, frozen=True):
    """Somebody wants the states of these topics deleted. Answered with a tuple of StatesOf, or with an ErrorCode about
    the group as a whole; a topic without states is left out."""

    group_id: str
    topics: tuple[str, ...]


class StatesInTheWay(Struct, frozen=True):
    """The reply to DeleteGroup: first delete these states, say StatesDeleted, and ask again."""

    states: tuple[StatesOf, ...]


class StatesInitialized(Struct, frozen=True):
    """Not answered."""

    group_id: str
    states: StatesOf


class StatesDeleted(Struct, frozen=True):
    """Answered with ErrorCode.none."""

    group_id: str
    states: StatesOf


class StatesFailed(Struct, frozen=True):
    """The share coordinator refused, or could not be reached: try again later. Not answered."""

    group_id: str
    topic_id: uuid.UUID


# --- work that a decision causes ------------------------------------------------------------------------------------


class InitializeStates(Struct, frozen=True):
    """To be followed by StatesInitialized or StatesFailed."""

    group_id: str
    states: StatesOf
    state_epoch: int
    start_offset: int


class DeleteStates(Struct, frozen=True):
    """To be followed by StatesDeleted or StatesFailed."""

    group_id: str
    states: StatesOf


StateWork = InitializeStates | DeleteStates

# --- from timers ----------------------------------------------------------------------------------------------------


class ShareSessionExpired(Struct, frozen=True):
    group_id: str
    member_id: str


class ShareWaitOver(Struct, frozen=True):
    """A member that joined has waited long enough for the state of its topics."""

    group_id: str
    member_id: str


class RetryStates(Struct, frozen=True):
    """Time to try again what has failed."""

    group_id: str
