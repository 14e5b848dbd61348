"""SyncGroup, v0 to v5: the leader sends the assignment of a generation, and each member receives its part.

v3 adds static members; from v5 on the protocol's type and name are required, and must match the group's.
"""

from __future__ import annotations

import asyncio

from headrace.api.contract import Reply, Request
from headrace.coordinators.groups.commands import Sync, SyncReply
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message


class SyncGroup:
    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def __call__(self, request: Request) -> Reply:
        body = request.body
        if request.version >= 5 and (body.protocol_type is None or body.protocol_name is None):
            return Message(error_code=ErrorCode.inconsistent_group_protocol)
        return _answer(
            self._groups.submit(
                Sync(
                    group_id=body.group_id,
                    member_id=body.member_id,
                    instance_id=body.group_instance_id,
                    generation=body.generation_id,
                    protocol_type=body.protocol_type,
                    protocol=body.protocol_name,
                    assignments={part.member_id: part.assignment for part in body.assignments},
                )
            )
        )


async def _answer(synced: asyncio.Future[SyncReply]) -> Message:
    try:
        reply = await synced
    except KafkaError as error:
        reply = SyncReply(error.code)
    return Message(
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )
