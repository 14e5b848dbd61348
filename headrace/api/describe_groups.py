"""DescribeGroups, v0 to v6: a group's state, its members, and their assignments.

Up to v5 a group that does not exist is described as dead; from v6 on it also gets GROUP_ID_NOT_FOUND and a message
(KIP-1043). No client is restricted, so the authorized operations (v3), if requested, are all that a group has.
"""

from __future__ import annotations

import asyncio

from headrace.api.authorized_operations import ALL_OF_A_GROUP, NOT_ASKED_FOR
from headrace.api.contract import Reply, Request
from headrace.coordinators.groups.commands import DescribeGroup, GroupDescription
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message

DEAD = "Dead"


class DescribeGroups:
    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def __call__(self, request: Request) -> Reply:
        names: list[str] = request.body.groups
        described = [self._groups.submit(DescribeGroup(name)) for name in names]
        operations = ALL_OF_A_GROUP if request.body.include_authorized_operations else NOT_ASKED_FOR
        return _answer(names, described, operations, request.version)


async def _answer(
    names: list[str], described: list[asyncio.Future[GroupDescription | str]], operations: int, version: int
) -> Message:
    groups = []
    for name, description in zip(names, described, strict=True):
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
