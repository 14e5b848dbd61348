"""ConsumerGroupHeartbeat, v0 and v1: join, leave and be a member of a consumer group (KIP-848), all in one.

The member epoch says what is wanted: 0 to join, -1 to leave, -2 for a static member that leaves and may come back.
What has not changed since the last heartbeat is left out (null, -1); the answer, too, has an assignment only when that
is new to the member. v1 brings patterns that the broker resolves, and member ids that the member makes itself.
"""

from __future__ import annotations

import asyncio
import uuid

from headrace.api.contract import Reply, Request
from headrace.coordinators.groups.consumer_commands import ConsumerHeartbeat, ConsumerHeartbeatReply
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.wire.errors import KafkaError
from headrace.wire.messages import Message


class ConsumerGroupHeartbeat:
    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def __call__(self, request: Request) -> Reply:
        body = request.body
        topics: list[str] | None = body.subscribed_topic_names
        return _answer(
            self._groups.submit(
                ConsumerHeartbeat(
                    group_id=body.group_id,
                    member_id=body.member_id,
                    epoch=body.member_epoch,
                    client_id=request.client_id,
                    client_host=f"/{request.peer.host}",  # as Kafka's tools show it
                    instance_id=body.instance_id,
                    rack=body.rack_id,
                    rebalance_timeout_ms=body.rebalance_timeout_ms,
                    topics=None if topics is None else tuple(topics),
                    pattern=body.subscribed_topic_regex,
                    assignor=body.server_assignor,
                    owned=_owned(body.topic_partitions),
                    brings_member_id=request.version >= 1,
                )
            )
        )


def _owned(parts: list[Message] | None) -> dict[uuid.UUID, frozenset[int]] | None:
    if parts is None:
        return None
    return {part.topic_id: frozenset(part.partitions) for part in parts if part.topic_id is not None}


async def _answer(answered: asyncio.Future[ConsumerHeartbeatReply]) -> Message:
    try:
        reply = await answered
    except KafkaError as error:
        reply = ConsumerHeartbeatReply(error.code, error.message or None)
    assignment = None
    if reply.assignment is not None:
        parts = [
            Message(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in reply.assignment.items()
        ]
        assignment = Message(topic_partitions=parts)
    return Message(
        error_code=reply.error,
        error_message=reply.message,
        member_id=reply.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=assignment,
    )
