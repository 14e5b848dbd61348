"""DescribeGroups, v0 to v6: a group's state, its members, and their assignments.

Up to v5 a group that does not exist is described as dead; from v6 on it also gets GROUP_ID_NOT_FOUND and a message
(KIP-1043). No client is restricted, so the authorized operations (v3), if requested, are all that a group has. A group
that is named repeatedly is described once, since its description may be large.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from headrace.api.authorized_operations import ALL_OF_A_GROUP, NOT_ASKED_FOR
from headrace.api.contract import Request, Steps
from headrace.api.pieces import Pace, in_turns
from headrace.coordinators.groups.commands import DescribeGroup, GroupDescription
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message

DEAD = "Dead"


class DescribeGroups:
    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def __call__(self, request: Request) -> Steps[Awaitable[Message]]:
        described, pace = dict[str, asyncio.Future[GroupDescription | str]](), Pace()
        for name in dict.fromkeys(request.body.groups):
            described[name] = self._groups.submit(DescribeGroup(name))
            if pace.is_over():
                yield
        operations = ALL_OF_A_GROUP if request.body.include_authorized_operations else NOT_ASKED_FOR
        return _answer(described, operations, request.version)


async def _answer(
    described: dict[str, asyncio.Future[GroupDescription | str]], operations: int, version: int
) -> Message:
    groups = []
    async for name, description in in_turns(described.items()):
        try:
            found = await description
        except KafkaError as error:
            groups.append(Message(group_id=name, error_code=error.code, error_message=error.message or None))
            continue
        group = _missing(name, found, version) if isinstance(found, str) else _found(name, found)
        group.authorized_operations = operations
        groups.append(group)
    return Message(groups=groups)


def _missing(name: str, why: str, version: int) -> Message:
    if version < 6:
        return Message(group_id=name, group_state=DEAD)
    return Message(group_id=name, group_state=DEAD, error_code=ErrorCode.group_id_not_found, error_message=why)


def _found(name: str, group: GroupDescription) -> Message:
    return Message(
        group_id=name,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[
            Message(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )
