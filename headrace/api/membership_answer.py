"""The response to a heartbeat of groups whose coordinator assigns: ConsumerGroupHeartbeat and ShareGroupHeartbeat."""

from __future__ import annotations

import asyncio

from headrace.coordinators.groups.membership_reply import MembershipReply
from headrace.wire.errors import KafkaError
from headrace.wire.messages import Message


async def membership_answer(answered: asyncio.Future[MembershipReply]) -> Message:
    try:
        reply = await answered
    except KafkaError as error:
        reply = MembershipReply(error.code, error.message or None)
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
