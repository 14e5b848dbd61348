"""JoinGroup, v0 to v9: joins a group and waits for its next generation.

v1 adds the rebalance timeout (before, the session timeout is used), v4 a member id that a new member gets first and
must rejoin with (KIP-394), v5 static members (KIP-345), v7 the protocol type in the response and a null protocol name
in errors, v8 a reason (for people; not kept), v9 `skip_assignment` for a static leader that returns (KIP-814).
"""

from __future__ import annotations

import asyncio

from headrace.api.contract import Reply, Request
from headrace.coordinators.groups.commands import Join, JoinReply
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.wire.errors import KafkaError
from headrace.wire.messages import Message


class JoinGroup:
    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def __call__(self, request: Request) -> Reply:
        body = request.body
        joined = self._groups.submit(
            Join(
                group_id=body.group_id,
                member_id=body.member_id,
                instance_id=body.group_instance_id,
                client_id=request.client_id,
                client_host=f"/{request.peer.host}",  # the format that Kafka's tools show
                session_timeout_ms=body.session_timeout_ms,
                rebalance_timeout_ms=body.rebalance_timeout_ms if request.version >= 1 else body.session_timeout_ms,
                protocol_type=body.protocol_type,
                protocols=tuple((protocol.name, protocol.metadata) for protocol in body.protocols),
                needs_member_id=request.version >= 4,
                can_skip_assignment=request.version >= 9,
            )
        )
        return _answer(joined, body.member_id, request.version)


async def _answer(joined: asyncio.Future[JoinReply], member_id: str, version: int) -> Message:
    try:
        reply = await joined
    except KafkaError as error:
        reply = JoinReply(error.code, member_id)
    return Message(
        error_code=reply.error,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol if reply.protocol is not None or version >= 7 else "",
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            Message(member_id=member, group_instance_id=instance, metadata=metadata)
            for member, instance, metadata in reply.members
        ],
    )
