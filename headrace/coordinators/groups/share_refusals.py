"""What a share group answers to commands that are meant for groups of other types, as Kafka does.

A share group has neither generations nor committed offsets, so there is nothing to join, to sync or to commit. Asked by
the groups shard before it decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.coordinators.groups.commands import (
    CommitInTransaction,
    CommitOffsets,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    Join,
    JoinReply,
    Leave,
    Sync,
    SyncReply,
)
from headrace.coordinators.groups.consumer_commands import (
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    DescribeConsumerGroup,
)
from headrace.coordinators.groups.membership_reply import MembershipReply
from headrace.wire.errors import ErrorCode

_NOT_FOUND = ErrorCode.group_id_not_found
_UNKNOWN = ErrorCode.unknown_member_id

_REFUSALS: Mapping[type, Callable[[Any], object]] = {
    Join: lambda command: JoinReply(ErrorCode.inconsistent_group_protocol, command.member_id),
    Sync: lambda command: SyncReply(_UNKNOWN),
    Heartbeat: lambda command: _UNKNOWN,
    Leave: lambda command: [_UNKNOWN] * len(command.members),
    CommitOffsets: lambda command: [_NOT_FOUND] * len(command.offsets),
    CommitInTransaction: lambda command: [_NOT_FOUND] * len(command.offsets),
    FetchOffsets: lambda command: _NOT_FOUND,
    DeleteOffsets: lambda command: _NOT_FOUND,
    DescribeGroup: lambda command: f"Group {command.group_id} is not a classic group.",
    ConsumerHeartbeat: lambda command: MembershipReply(_NOT_FOUND, _no_consumer_group(command.group_id)),
    DescribeConsumerGroup: lambda command: ConsumerGroupDescription(_NOT_FOUND, _no_consumer_group(command.group_id)),
}


def refusal_of_a_share_group(command: object) -> object | None:
    """The reply, or None if the command is one for share groups."""
    refuse = _REFUSALS.get(type(command))
    return None if refuse is None else refuse(command)


def _no_consumer_group(group_id: str) -> str:
    return f"Group {group_id} is not a consumer group."
