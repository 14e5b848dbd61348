"""ShareGroupDescribe, v1: a share group (KIP-932), its members, and what they were told to have.

For a group of another type or one that does not exist, the error is GROUP_ID_NOT_FOUND. No client is restricted, so the
authorized operations, if requested, are all that a group has. A group that is named repeatedly is described once, since
its description may be large.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from headrace.api.authorized_operations import ALL_OF_A_GROUP, NOT_ASKED_FOR
from headrace.api.consumer_group_describe import assignment_of
from headrace.api.contract import Request, Steps
from headrace.api.pieces import Pace, in_turns
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.coordinators.groups.offsets import Topics
from headrace.coordinators.groups.share_commands import DescribeShareGroup, ShareGroupDescription
from headrace.model.image import ClusterImage
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message


class ShareGroupDescribe:
    def __init__(self, groups: GroupCoordinator, topics: Topics) -> None:
        self._groups = groups
        self._topics = topics

    def __call__(self, request: Request) -> Steps[Awaitable[Message]]:
        described, pace = dict[str, asyncio.Future[ShareGroupDescription]](), Pace()
        for name in dict.fromkeys(request.body.group_ids):
            described[name] = self._groups.submit(DescribeShareGroup(name))
            if pace.is_over():
                yield
        operations = ALL_OF_A_GROUP if request.body.include_authorized_operations else NOT_ASKED_FOR
        return self._answer(described, operations)

    async def _answer(self, described: dict[str, asyncio.Future[ShareGroupDescription]], operations: int) -> Message:
        groups = []
        async for name, description in in_turns(described.items()):
            try:
                found = await description
            except KafkaError as error:
                found = ShareGroupDescription(error.code, error.message or None)
            group = _group(name, found, self._topics.image())
            group.authorized_operations = operations
            groups.append(group)
        return Message(groups=groups)


def _group(name: str, group: ShareGroupDescription, image: ClusterImage) -> Message:
    return Message(
        error_code=group.error,
        error_message=group.message,
        group_id=name,
        group_state=group.state if group.error is ErrorCode.none else "Dead",
        group_epoch=group.epoch,
        assignment_epoch=group.plan_epoch,
        assignor_name=group.assignor if group.error is ErrorCode.none else "",
        members=[
            Message(
                member_id=member.member_id,
                rack_id=member.rack,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=list(member.topics),
                assignment=assignment_of(member.assignment, image),
            )
            for member in group.members
        ],
    )
