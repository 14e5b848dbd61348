"""DeleteGroups, v0 to v2: deletes groups without members, and their offsets."""

from __future__ import annotations

import asyncio

from headrace.api.contract import Reply, Request
from headrace.coordinators.groups.commands import DeleteGroup
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message


class DeleteGroups:
    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def __call__(self, request: Request) -> Reply:
        names: list[str] = request.body.groups_names
        return _answer(names, [self._groups.submit(DeleteGroup(name)) for name in names])


async def _answer(names: list[str], deleted: list[asyncio.Future[ErrorCode]]) -> Message:
    results = []
    for name, answered in zip(names, deleted, strict=True):
        try:
            code = await answered
        except KafkaError as error:
            code = error.code
        results.append(Message(group_id=name, error_code=code))
    return Message(results=results)
