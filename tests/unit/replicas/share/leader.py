"""A share partition at its leader, in virtual time, with a coordinator that can fail, be slow, or lose its answer."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, cast

from headrace.coordinators.shares.commands import (
    DeleteState,
    InitializeState,
    ReadState,
    Refusal,
    SummarizeState,
    WriteState,
)
from headrace.coordinators.shares.shard import ShareShard
from headrace.model.group_config import ShareGroupConfig
from headrace.model.share_state import NO_START, SharePartition, ShareState
from headrace.replicas.partition import Partition
from headrace.replicas.share.acquisition import Span
from headrace.replicas.share.deliveries import Acknowledgement
from headrace.replicas.share.live_partition import LivePartition
from headrace.replicas.share.live_partitions import LivePartitions
from headrace.replicas.share.terms import terms_of
from headrace.wire.errors import ErrorCode, KafkaError
from sim.loop import SimClock, run

GROUP, TOPIC_ID = "cooks", uuid.UUID(int=9)
PLACE = SharePartition(GROUP, TOPIC_ID, 0)
CONFIG = ShareGroupConfig(share_record_lock_ms=15_000, share_max_record_locks=100)
Range = tuple[int, int, int]


class ShardStates:
    """`ShareStates` over a real shard."""

    def __init__(self) -> None:
        self.shard = ShareShard()
        self.writes: list[ShareState] = []
        self.refuses: list[ErrorCode] = []  # of the next writes: nothing is stored
        self.loses: list[ErrorCode] = []  # of the next writes: they are stored, and fail
        self.unreadable: ErrorCode | None = None
        self.gate = asyncio.Event()
        """Writes wait while it is not set."""
        self.gate.set()

    def _decide(self, command: Any) -> Any:
        outcome = self.shard.decide(command, 0)
        for key, value in outcome.records:
            self.shard.apply(key, value)
        if isinstance(outcome.reply, Refusal):
            raise KafkaError(outcome.reply.code, outcome.reply.why)
        return outcome.reply

    async def initialize(self, partition: SharePartition, state_epoch: int, start_offset: int) -> None:
        self._decide(InitializeState(partition, state_epoch, start_offset))

    async def read(self, partition: SharePartition, leader_epoch: int) -> ShareState:
        await asyncio.sleep(0)
        if self.unreadable is not None:
            raise KafkaError(self.unreadable)
        return cast("ShareState", self._decide(ReadState(partition, leader_epoch)))

    async def write(self, partition: SharePartition, state: ShareState) -> None:
        await self.gate.wait()
        if self.refuses:
            raise KafkaError(self.refuses.pop(0))
        self._decide(WriteState(partition, state))
        self.writes.append(state)
        if self.loses:
            raise KafkaError(self.loses.pop(0))

    async def delete(self, partition: SharePartition) -> None:
        self._decide(DeleteState(partition))

    async def summary(self, partition: SharePartition) -> ShareState:
        return cast("ShareState", self._decide(SummarizeState(partition)))


class Log:
    start_offset = 0

    def find_time(self, since_ms: int, below: int) -> tuple[int, int]:
        return 30, since_ms


class Led:
    """What a share partition needs of the partition."""

    def __init__(self) -> None:
        self.topic, self.topic_id, self.index = "orders", TOPIC_ID, 0
        self.leader_epoch = 3
        self.log = Log()
        self.high_watermark, self.last_stable_offset = 50, 40

    def __str__(self) -> str:
        return "orders-0"


class Leader:
    def __init__(self, clock: SimClock) -> None:
        self.clock = clock
        self.states = ShardStates()
        self.led = Led()
        self.config = CONFIG
        self.partitions = LivePartitions(self.states, lambda _: terms_of(self.config), clock, self._off_loop)

    async def _off_loop(self, work: Callable[..., Any], *args: Any) -> Any:
        return work(*args)

    async def open(self, start: int = 0, epoch: int = 1) -> LivePartition:
        if start is not None:
            await self.states.initialize(PLACE, epoch, start)
        live = self.partitions.open(GROUP, cast("Partition", self.led))
        await self.settle()
        return live

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def stored(self) -> ShareState:
        return self.states.shard.stored[PLACE].state()


def take(live: LivePartition, member: str, first: int, last: int, most: int = 1000) -> list[Range]:
    acquired = live.acquire(member, [Span(first, last)], most, strict=True)
    return [(one.first, one.last, one.count) for one in acquired]


def acknowledge(live: LivePartition, member: str, first: int, last: int, kind: int) -> asyncio.Future[None]:
    stored = live.acknowledge(member, [Acknowledgement(first, last, (kind,))])
    assert stored is not None
    return stored


def play(story: Callable[[Leader], Coroutine[Any, Any, None]]) -> None:
    async def told() -> None:
        leader = Leader(SimClock())
        try:
            await story(leader)
        finally:
            leader.partitions.close()
            await leader.settle()

    run(told(), seed=1)


__all__ = ["CONFIG", "GROUP", "NO_START", "PLACE", "Leader", "acknowledge", "play", "take"]
