"""The share coordinator as the rest of the broker sees it: the stored states of share partitions, on their coordinator.

Handlers of the state APIs submit commands, and the broker's own leaders and groups call the same by the methods of
`ShareStates`. All decisions are in the shards. This module also prunes the state topic: every few minutes it notes
where the log ends (a round begins), and some rounds later, when every share partition has a snapshot that was written
after that and is committed, it moves the start of the log there.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterator
from typing import Any, Protocol

from msgspec import Struct

from headrace.coordinators.runtime import CoordinatorRuntime, Journal
from headrace.coordinators.shares.commands import (
    Command,
    DeleteState,
    ForgetTopic,
    InitializeState,
    NextRound,
    ReadState,
    Refusal,
    SnapshotCold,
    SummarizeState,
    WriteState,
    coordinator_key,
)
from headrace.coordinators.shares.shard import ShareShard
from headrace.model.image import ClusterImage
from headrace.model.share_state import STATE_TOPIC, SharePartition, ShareState
from headrace.wire.errors import KafkaError
from headrace.world.clock import Clock

logger = logging.getLogger(__name__)

_WORTH_PRUNING = 1000  # records


class PrunableJournal(Journal, Protocol):
    def end_offset(self, topic: str, partition: int) -> int: ...

    def prune(self, topic: str, partition: int, before: int) -> None:
        """Forget everything before this offset. KafkaError if this broker does not lead the partition."""
        ...


class Topics(Protocol):
    def image(self) -> ClusterImage: ...


class _Round(Struct):
    """Began at this offset, when its shard had so many share partitions."""

    offset: int
    stored: int
    pruned_end: int = -1
    """Where the log ended when everything before `offset` had been pruned; -1 before that."""


class ShareCoordinator:
    def __init__(
        self,
        journal: PrunableJournal,
        clock: Clock,
        topics: Topics,
        *,
        updates_per_snapshot: int = 500,
        prune_interval_ms: int = 300_000,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._topics = topics
        self._prune_interval_s = prune_interval_ms / 1000
        self._lost: set[uuid.UUID] = set()  # topics that were unknown when it was pruned last
        self._rounds: dict[tuple[int, int], _Round] = {}  # by partition and leader epoch
        self._runtime = CoordinatorRuntime(
            journal, clock, lambda: ShareShard(updates_per_snapshot), self._partition_count, STATE_TOPIC
        )

    def _partition_count(self) -> int:
        topic = self._topics.image().topics.get(STATE_TOPIC)
        return len(topic.partitions) if topic is not None else 0

    async def run(self) -> None:
        """Loads partitions as they are taken over, and prunes them, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._runtime.run())
            group.create_task(self._prune_for_ever())

    def on_leadership(self, partition: int, leads: bool, epoch: int) -> None:
        """This broker became, or ceased to be, the leader of a partition of `__share_group_state`."""
        self._runtime.on_leadership(partition, leads, epoch)

    def on_topic_deleted(self, topic_id: uuid.UUID) -> None:
        self._runtime.tell_all(ForgetTopic(topic_id))

    # --- for handlers -----------------------------------------------------------------------------------------------

    def submit(self, command: Command) -> asyncio.Future[Any]:
        """Takes effect before it returns; the future gets the reply that the command's docstring says, or a Refusal, or
        KafkaError."""
        return self._runtime.submit(coordinator_key(command.partition), command)

    # --- the states of this coordinator, for this broker (ShareStates) ----------------------------------------------

    async def initialize(self, partition: SharePartition, state_epoch: int, start_offset: int) -> None:
        await self._ask(InitializeState(partition, state_epoch, start_offset))

    async def read(self, partition: SharePartition, leader_epoch: int) -> ShareState:
        state = await self._ask(ReadState(partition, leader_epoch))
        assert isinstance(state, ShareState)
        return state

    async def write(self, partition: SharePartition, state: ShareState) -> None:
        await self._ask(WriteState(partition, state))

    async def delete(self, partition: SharePartition) -> None:
        await self._ask(DeleteState(partition))

    async def summary(self, partition: SharePartition) -> ShareState:
        state = await self._ask(SummarizeState(partition))
        assert isinstance(state, ShareState)
        return state

    async def _ask(self, command: Command) -> Any:
        reply = await self.submit(command)
        if isinstance(reply, Refusal):
            raise KafkaError(reply.code, reply.why)
        return reply

    # --- for metrics ------------------------------------------------------------------------------------------------

    def states(self) -> Iterator[tuple[SharePartition, ShareState]]:
        """Every share partition that is loaded here, without its batches."""
        for shard in self._runtime.shards():
            for key, stored in shard.stored.items():
                yield key, stored.state(batches=False)

    # --- pruning ----------------------------------------------------------------------------------------------------

    async def _prune_for_ever(self) -> None:
        while True:
            await self._clock.sleep(self._prune_interval_s)
            await self.prune()

    async def prune(self) -> None:
        """All partitions of the state topic that are led and loaded here."""
        self._forget_lost_topics()
        seats = self._runtime.loaded()
        self._rounds = {seat: begun for seat, begun in self._rounds.items() if seat in seats}
        for partition, epoch in seats:
            try:
                await self._prune(partition, epoch)
            except (KafkaError, OSError) as error:  # it has moved, or its disk has failed: not here any more
                logger.info("%s-%d is not pruned: %s", STATE_TOPIC, partition, error)

    def _forget_lost_topics(self) -> None:
        """Those that were deleted while nobody here heard of it: unknown for two rounds, since news may be late."""
        known = self._topics.image().topics_by_id
        lost = {key.topic_id for shard in self._runtime.shards() for key in shard.stored if key.topic_id not in known}
        for topic_id in lost & self._lost:
            self._runtime.tell_all(ForgetTopic(topic_id))
        self._lost = lost

    async def _prune(self, partition: int, epoch: int) -> None:
        begun = self._rounds.get((partition, epoch))
        if begun is not None and begun.pruned_end < 0:
            while await self._runtime.ask(partition, SnapshotCold()):
                await asyncio.sleep(0)
            self._journal.prune(STATE_TOPIC, partition, begun.offset)
            begun.pruned_end = self._journal.end_offset(STATE_TOPIC, partition)
        end = self._journal.end_offset(STATE_TOPIC, partition)
        if begun is None or end - begun.pruned_end >= max(_WORTH_PRUNING, 2 * begun.stored):
            stored = self._runtime.ask(partition, NextRound())  # it takes effect now, at this end of the log
            self._rounds[partition, epoch] = _Round(end, await stored)
