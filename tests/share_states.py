"""A share coordinator in memory: what brokers and coordinators under test keep the states of share groups in.

It keeps the rules of the real one that callers rely on: an initialization with an older state epoch is fenced, one with
the same epoch starts anew, and the state of a partition that was never initialized can be deleted but not read.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from headrace.model.share_state import SharePartition, ShareState
from headrace.wire.errors import ErrorCode, KafkaError


class MemoryStates:
    """`refusal` makes every call fail, `hold` keeps them waiting."""

    def __init__(self) -> None:
        self.states: dict[SharePartition, ShareState] = {}
        self.refusal: KafkaError | None = None
        self._held: asyncio.Event | None = None

    def hold(self) -> None:
        self._held = asyncio.Event()

    def release(self) -> None:
        if self._held is not None:
            self._held.set()
            self._held = None

    async def _enter(self) -> None:
        if self._held is not None:
            await self._held.wait()
        if self.refusal is not None:
            raise self.refusal

    async def initialize(self, partition: SharePartition, state_epoch: int, start_offset: int) -> None:
        await self._enter()
        known = self.states.get(partition)
        if known is not None and known.state_epoch > state_epoch:
            raise KafkaError(ErrorCode.fenced_state_epoch)
        self.states[partition] = ShareState(state_epoch, -1, start_offset)

    async def read(self, partition: SharePartition, leader_epoch: int) -> ShareState:
        await self._enter()
        state = self.states[partition] = replace(self._known(partition), leader_epoch=leader_epoch)
        return state

    async def write(self, partition: SharePartition, state: ShareState) -> None:
        await self._enter()
        if state.state_epoch < self._known(partition).state_epoch:
            raise KafkaError(ErrorCode.fenced_state_epoch)
        self.states[partition] = state

    async def delete(self, partition: SharePartition) -> None:
        await self._enter()
        self.states.pop(partition, None)

    async def summary(self, partition: SharePartition) -> ShareState:
        await self._enter()
        return replace(self._known(partition), batches=())

    def _known(self, partition: SharePartition) -> ShareState:
        if partition not in self.states:
            raise KafkaError(ErrorCode.invalid_request, "there is no state of this share partition")
        return self.states[partition]
