"""ConsumerGroupDescribe, v0 and v1: a consumer group (KIP-848), its members, and their current and target assignments.

For a classic group or one that does not exist, the error is GROUP_ID_NOT_FOUND; clients then use DescribeGroups. v1
adds which members use the classic protocol. No client is restricted, so the authorized operations, if requested, are
all that a group has. A group that is named repeatedly is described once, since its description may be large.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from headrace.api.authorized_operations import ALL_OF_A_GROUP, NOT_ASKED_FOR
from headrace.api.contract import Request, Steps
from headrace.api.pieces import Pace, in_turns
from headrace.coordinators.groups.consumer_commands import ConsumerGroupDescription, DescribeConsumerGroup
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.coordinators.groups.offsets import Topics
from headrace.coordinators.groups.reconciliation import Parts
from headrace.model.image import ClusterImage
from headrace.wire.errors import KafkaError
from headrace.wire.messages import Message

_CLASSIC, _CONSUMER = 0, 1


class ConsumerGroupDescribe:
    def __init__(self, groups: GroupCoordinator, topics: Topics) -> None:
        self._groups = groups
        self._topics = topics

    def __call__(self, request: Request) -> Steps[Awaitable[Message]]:
        described, pace = dict[str, asyncio.Future[ConsumerGroupDescription]](), Pace()
        for name in dict.fromkeys(request.body.group_ids):
            described[name] = self._groups.submit(DescribeConsumerGroup(name))
            if pace.is_over():
                yield
        operations = ALL_OF_A_GROUP if request.body.include_authorized_operations else NOT_ASKED_FOR
        return self._answer(described, operations)

    async def _answer(self, described: dict[str, asyncio.Future[ConsumerGroupDescription]], operations: int) -> Message:
        groups = []
        async for name, description in in_turns(described.items()):
            try:
                found = await description
            except KafkaError as error:
                found = ConsumerGroupDescription(error.code, error.message or None)
            group = _group(name, found, self._topics.image())
            group.authorized_operations = operations
            groups.append(group)
        return Message(groups=groups)


def _group(name: str, group: ConsumerGroupDescription, image: ClusterImage) -> Message:
    return Message(
        error_code=group.error,
        error_message=group.message,
        group_id=name,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.plan_epoch,
        assignor_name=group.assignor,
        members=[
            Message(
                member_id=member.member_id,
                instance_id=member.instance_id,
                rack_id=member.rack,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=list(member.topics),
                subscribed_topic_regex=member.pattern or "",
                assignment=assignment_of(member.assignment, image),
                target_assignment=assignment_of(member.target, image),
                member_type=_CLASSIC if member.classic else _CONSUMER,
            )
            for member in group.members
        ],
    )


def assignment_of(parts: Parts, image: ClusterImage) -> Message:
    """Topics that were deleted in the meantime are omitted."""
    known = image.topics_by_id
    return Message(
        topic_partitions=[
            Message(topic_id=topic_id, topic_name=known[topic_id].name, partitions=sorted(partitions))
            for topic_id, partitions in parts.items()
            if topic_id in known
        ]
    )
