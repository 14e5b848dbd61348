"""What members are told whose coordinator assigns the partitions: those of consumer groups and of share groups."""

from __future__ import annotations

from msgspec import Struct

from headrace.coordinators.groups.reconciliation import Parts
from headrace.wire.errors import ErrorCode


class MembershipReply(Struct, frozen=True):
    """The answer to a heartbeat."""

    error: ErrorCode = ErrorCode.none
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Parts | None = None  # None: as before
