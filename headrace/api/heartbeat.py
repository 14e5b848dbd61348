"""Heartbeat, v0 to v4: keeps a member's session alive, and tells the member if it must rejoin. v3 adds static members.

While the coordinator is loading, the response is success, as in Kafka: sessions restart when it has loaded, and clients
such as Sarama end a member's session on any error that they do not expect here.
"""

from __future__ import annotations

import asyncio

from headrace.api.contract import Reply, Request
from headrace.coordinators.groups.commands import Heartbeat as HeartbeatCommand
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message


class Heartbeat:
    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def __call__(self, request: Request) -> Reply:
        body = request.body
        command = HeartbeatCommand(body.group_id, body.member_id, body.group_instance_id, body.generation_id)
        return _answer(self._groups.submit(command))


async def _answer(answered: asyncio.Future[ErrorCode]) -> Message:
    try:
        return Message(error_code=await answered)
    except KafkaError as error:
        loads = error.code is ErrorCode.coordinator_load_in_progress
        return Message(error_code=ErrorCode.none if loads else error.code)
