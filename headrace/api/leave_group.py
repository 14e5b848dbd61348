"""LeaveGroup, v0 to v5: members leave, and the group rebalances immediately instead of after their session timeout.

Up to v2 one member leaves, with its error at the top level. From v3 on several may leave, each with its own error; an
operator removes static members by their instance id alone. v5 adds a reason, which is for people and not kept.
"""

from __future__ import annotations

import asyncio

from headrace.api.contract import Reply, Request
from headrace.coordinators.groups.commands import Leave
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message


class LeaveGroup:
    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def __call__(self, request: Request) -> Reply:
        body = request.body
        if request.version >= 3:
            leaving = tuple((member.member_id, member.group_instance_id) for member in body.members)
        else:
            leaving = ((body.member_id, None),)
        if not body.group_id:
            return Message(error_code=ErrorCode.invalid_group_id)
        return _answer(self._groups.submit(Leave(body.group_id, leaving)), leaving, request.version)


async def _answer(
    left: asyncio.Future[list[ErrorCode]], leaving: tuple[tuple[str, str | None], ...], version: int
) -> Message:
    try:
        errors = await left
    except KafkaError as error:
        return Message(error_code=error.code)
    if version < 3:
        return Message(error_code=errors[0])
    return Message(
        members=[
            Message(member_id=member_id, group_instance_id=instance, error_code=error)
            for (member_id, instance), error in zip(leaving, errors, strict=True)
        ]
    )
