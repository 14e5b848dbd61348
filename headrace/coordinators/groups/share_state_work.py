"""Has the share coordinator initialize and delete states, as decisions of share groups ask for it.

The shard decides and writes down what is needed; this asks for each partition, through the `ShareStates` that the
broker plugs in, and tells the shard how it ended. What is asked for once more, after a failure or on another broker,
does no harm. Used by the group coordinator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from headrace.coordinators.groups.share_commands import (
    DeleteStates,
    InitializeStates,
    StatesDeleted,
    StatesFailed,
    StatesInitialized,
    StatesOf,
    StateWork,
)
from headrace.model.share_state import SharePartition, ShareState, ShareStates
from headrace.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

AT_ONCE = 50  # partitions of one topic
_GONE = (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id)  # and its state with it


class ShareStateWork:
    def __init__(self, states: ShareStates, tell: Callable[[str, Any], None]) -> None:
        """`tell` submits a command to the shard of a group."""
        self._states = states
        self._tell = tell
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, work: StateWork) -> None:
        task = asyncio.ensure_future(self._carry_out(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def stop(self) -> None:
        for task in list(self._running):
            task.cancel()

    async def _carry_out(self, work: StateWork) -> None:
        group_id, states = work.group_id, work.states
        try:
            if isinstance(work, InitializeStates):
                await self._initialize(work)
                self._tell(group_id, StatesInitialized(group_id, states))
            else:
                await self.delete(group_id, states)
                self._tell(group_id, StatesDeleted(group_id, states))
        except KafkaError as error:
            doing = "delete" if isinstance(work, DeleteStates) else "initialize"
            logger.info("cannot %s the state of share group %s in %s yet: %s", doing, group_id, states.topic, error)
            self._tell(group_id, StatesFailed(group_id, states.topic_id))

    async def _initialize(self, work: InitializeStates) -> None:
        states = work.states
        await _for_each(
            states.partitions,
            lambda index: self._states.initialize(
                SharePartition(work.group_id, states.topic_id, index), work.state_epoch, work.start_offset
            ),
        )

    async def delete(self, group_id: str, states: StatesOf) -> None:
        """KafkaError if one of them may be left."""
        await _for_each(states.partitions, lambda index: self._delete(SharePartition(group_id, states.topic_id, index)))

    async def _delete(self, partition: SharePartition) -> None:
        try:
            await self._states.delete(partition)
        except KafkaError as error:
            if error.code not in _GONE:
                raise


class NoStates:
    """Of a broker without a share coordinator: refuses everything."""

    async def initialize(self, partition: SharePartition, state_epoch: int, start_offset: int) -> None:
        raise _refusal()

    async def read(self, partition: SharePartition, leader_epoch: int) -> ShareState:
        raise _refusal()

    async def write(self, partition: SharePartition, state: ShareState) -> None:
        raise _refusal()

    async def delete(self, partition: SharePartition) -> None:
        raise _refusal()

    async def summary(self, partition: SharePartition) -> ShareState:
        raise _refusal()


def _refusal() -> KafkaError:
    return KafkaError(ErrorCode.coordinator_not_available, "this broker has no share coordinator")


async def _for_each(partitions: Iterable[int], do: Callable[[int], Awaitable[None]]) -> None:
    indexes = list(partitions)
    for start in range(0, len(indexes), AT_ONCE):
        ended = await asyncio.gather(*map(do, indexes[start : start + AT_ONCE]), return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException):
                raise error
