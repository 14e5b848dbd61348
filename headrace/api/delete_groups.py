"""DeleteGroups, v0 to v2: deletes groups without members, with their offsets and the states of share groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from headrace.api.contract import Request, Steps
from headrace.api.pieces import Pace, in_turns
from headrace.coordinators.groups.commands import DeleteGroup
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.coordinators.groups.share_commands import StatesInTheWay
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message

_Reply = ErrorCode | StatesInTheWay
_GROUPS = 50  # in one piece: each is written to the journal


class DeleteGroups:
    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def __call__(self, request: Request) -> Steps[Awaitable[Message]]:
        deleted, pace = list[tuple[str, asyncio.Future[_Reply]]](), Pace(_GROUPS)
        for name in request.body.groups_names:
            deleted.append((name, self._groups.submit(DeleteGroup(name))))
            if pace.is_over():
                yield
        return self._answer(deleted)

    async def _answer(self, deleted: list[tuple[str, asyncio.Future[_Reply]]]) -> Message:
        results = []
        async for name, answered in in_turns(deleted):
            try:
                code = await self._groups.finish_deletion(name, await answered)
            except KafkaError as error:
                code = error.code
            results.append(Message(group_id=name, error_code=code))
        return Message(results=results)
