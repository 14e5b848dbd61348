"""The five APIs by which brokers keep the state of share partitions with its coordinator: InitializeShareGroupState v0,
ReadShareGroupState v0, WriteShareGroupState v0 and v1, DeleteShareGroupState v0, ReadShareGroupStateSummary v0 and v1.

Asked by the leaders of partitions and by group coordinators (server/remote_shares.py), as in Kafka; clients have no use
for them. A request names share partitions of one group, and each has a result of its own. They may belong to several
coordinators; one that does not belong here gets NOT_COORDINATOR. Version 1 of write and summary adds the count of
records that are done with (KIP-1226).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from headrace.api.contract import Request, Steps
from headrace.api.pieces import Pace, in_turns
from headrace.coordinators.shares.commands import (
    Command,
    DeleteState,
    InitializeState,
    ReadState,
    Refusal,
    SummarizeState,
    WriteState,
)
from headrace.coordinators.shares.coordinator import ShareCoordinator
from headrace.model.share_state import SharePartition, ShareState, StateBatch
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message

MakeCommand = Callable[[SharePartition, Message], Command]
Show = Callable[[Message, ShareState], None]
Reply = tuple[int, "asyncio.Future[Any] | ErrorCode"]
Asked = tuple[Message, list[Reply]]


class ShareGroupStates:
    """The handler of one of them."""

    def __init__(self, coordinator: ShareCoordinator, make: MakeCommand) -> None:
        self._coordinator = coordinator
        self._make = make

    def __call__(self, request: Request) -> Steps[Awaitable[Message]]:
        asked, pace = list[Asked](), Pace()
        for topic in request.body.topics:
            replies = list[Reply]()
            for data in topic.partitions:
                replies.append((data.partition, self._submit(request.body.group_id, topic, data)))
                if pace.is_over():
                    yield
            asked.append((topic, replies))
        return self._response(request.api_key, asked)

    def _submit(self, group: str, topic: Message, data: Message) -> asyncio.Future[Any] | ErrorCode:
        if topic.topic_id is None or data.partition < 0 or not group:
            return ErrorCode.invalid_request
        return self._coordinator.submit(self._make(SharePartition(group, topic.topic_id, data.partition), data))

    async def _response(self, api_key: int, asked: list[Asked]) -> Message:
        show = _show_batches if api_key == ApiKey.READ_SHARE_GROUP_STATE else _show_summary
        results = []
        for topic, replies in asked:
            partitions = [await _result(partition, reply, show) async for partition, reply in in_turns(replies)]
            results.append(Message(topic_id=topic.topic_id, partitions=partitions))
        return Message(results=results)


def initialize(partition: SharePartition, data: Message) -> Command:
    return InitializeState(partition, data.state_epoch, data.start_offset)


def read(partition: SharePartition, data: Message) -> Command:
    return ReadState(partition, data.leader_epoch)


def write(partition: SharePartition, data: Message) -> Command:
    batches, count = read_batches(data), data.delivery_complete_count
    return WriteState(partition, ShareState(data.state_epoch, data.leader_epoch, data.start_offset, count, batches))


def delete(partition: SharePartition, _: Message) -> Command:
    return DeleteState(partition)


def summarize(partition: SharePartition, _: Message) -> Command:
    return SummarizeState(partition)


async def _result(partition: int, reply: asyncio.Future[Any] | ErrorCode, show: Show) -> Message:
    if isinstance(reply, ErrorCode):
        return Message(partition=partition, error_code=reply)
    try:
        state = await reply
    except KafkaError as error:
        return Message(partition=partition, error_code=error.code, error_message=str(error))
    if isinstance(state, Refusal):
        return Message(partition=partition, error_code=state.code, error_message=state.why or None)
    answer = Message(partition=partition, error_code=0)
    if isinstance(state, ShareState):
        answer.state_epoch, answer.start_offset = state.state_epoch, state.start_offset
        show(answer, state)
    return answer


def _show_batches(answer: Message, state: ShareState) -> None:
    answer.state_batches = written_batches(state)


def _show_summary(answer: Message, state: ShareState) -> None:
    answer.leader_epoch, answer.delivery_complete_count = state.leader_epoch, state.delivery_complete_count


def written_batches(state: ShareState) -> list[Message]:
    return [
        Message(
            first_offset=batch.first_offset,
            last_offset=batch.last_offset,
            delivery_state=batch.state,
            delivery_count=batch.delivery_count,
        )
        for batch in state.batches
    ]


def read_batches(message: Message) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in message.state_batches
    )
