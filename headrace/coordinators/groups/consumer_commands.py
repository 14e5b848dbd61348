"""The commands of the group coordinator for consumer groups (KIP-848), and their replies."""

from __future__ import annotations

from msgspec import Struct

from headrace.coordinators.groups.reconciliation import Parts
from headrace.wire.errors import ErrorCode

JOIN, LEAVE, LEAVE_FOR_NOW = 0, -1, -2  # member epochs with a special meaning


class ConsumerHeartbeat(Struct, frozen=True):
    """Everything but the first three may be left out (None, -1) when it has not changed."""

    group_id: str
    member_id: str
    epoch: int  # the member's, or one of JOIN, LEAVE and LEAVE_FOR_NOW
    client_id: str
    client_host: str
    instance_id: str | None
    rack: str | None
    rebalance_timeout_ms: int
    topics: tuple[str, ...] | None
    pattern: str | None  # "": removed
    assignor: str | None
    owned: Parts | None
    brings_member_id: bool = True  # since version 1 the member generates its own id


class DescribeConsumerGroup(Struct, frozen=True):
    """Answered with a ConsumerGroupDescription."""

    group_id: str


class ConsumerMemberDescription(Struct, frozen=True):
    member_id: str
    instance_id: str | None
    rack: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    pattern: str | None
    assignment: Parts
    target: Parts
    classic: bool


class ConsumerGroupDescription(Struct, frozen=True):
    """`error`: there is no such group, or it is of the other type."""

    error: ErrorCode = ErrorCode.none
    message: str | None = None
    state: str = ""
    epoch: int = 0
    plan_epoch: int = 0
    assignor: str = ""
    members: tuple[ConsumerMemberDescription, ...] = ()


# --- from timers ----------------------------------------------------------------------------------------------------


class RevocationTimeUp(Struct, frozen=True):
    """A member has not revoked partitions within its rebalance timeout."""

    group_id: str
    member_id: str
    epoch: int


class ClassicMemberTimeUp(Struct, frozen=True):
    """A member that speaks the classic protocol did not join again, or did not sync, within its rebalance timeout."""

    group_id: str
    member_id: str
