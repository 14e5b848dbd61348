"""The group coordinator as the rest of the broker sees it: one object for handlers, leadership and metrics.

Handlers submit commands; the broker reports which partitions of `__consumer_offsets` it leads and which topics were
deleted; the metrics endpoint reads groups and offsets. All decisions are in the shards, all waiting in the runtime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Protocol

from headrace.coordinators.groups.commands import DeleteGroup, ForgetTopic, GroupListing, ListGroups
from headrace.coordinators.groups.offsets import Topics
from headrace.coordinators.groups.settings import GroupSettings
from headrace.coordinators.groups.shard import GroupShard
from headrace.coordinators.groups.share_commands import StatesDeleted, StatesInTheWay, StatesOf, StateWork
from headrace.coordinators.groups.share_state_work import NoStates, ShareStateWork
from headrace.coordinators.runtime import CoordinatorRuntime, Journal
from headrace.model.image import GROUP_OFFSETS_TOPIC
from headrace.model.share_state import ShareStates
from headrace.model.transaction_end import TransactionEnd
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.clock import Clock
from headrace.world.entropy import Entropy


class GroupCommand(Protocol):
    @property
    def group_id(self) -> str: ...


class GroupCoordinator:
    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        entropy: Entropy,
        topics: Topics,
        settings: GroupSettings,
        share_states: ShareStates | None = None,
    ) -> None:
        """`share_states`: where the states of share groups are kept, if there is such a place."""
        self._topics = topics
        self._runtime = CoordinatorRuntime(
            journal,
            clock,
            lambda: GroupShard(settings, topics, entropy, clock.monotonic),
            self._partition_count,
            run_follow_up=self._begin,
        )
        self._state_work = ShareStateWork(share_states or NoStates(), self._runtime.tell)

    def _partition_count(self) -> int:
        topic = self._topics.image().topics.get(GROUP_OFFSETS_TOPIC)
        return len(topic.partitions) if topic is not None else 0

    async def run(self) -> None:
        """Loads partitions as they are taken over, until cancelled."""
        try:
            await self._runtime.run()
        finally:
            self._state_work.stop()

    # --- for the broker ---------------------------------------------------------------------------------------------

    def on_leadership(self, partition: int, leads: bool, epoch: int) -> None:
        """This broker became, or ceased to be, the leader of a partition of `__consumer_offsets`."""
        self._runtime.on_leadership(partition, leads, epoch)

    def end_transaction(self, partition: int, end: TransactionEnd) -> asyncio.Future[None]:
        """A producer's transaction has ended: its offsets for groups of this partition take effect or are dropped."""
        return self._runtime.end_transaction(partition, end)

    def on_topic_deleted(self, name: str) -> None:
        self._runtime.tell_all(ForgetTopic(name))

    # --- for handlers -----------------------------------------------------------------------------------------------

    def submit(self, command: GroupCommand) -> asyncio.Future[Any]:
        """Takes effect before it returns; the future gets the reply that the command's docstring says, or
        KafkaError."""
        return self._runtime.submit(command.group_id, command)

    async def finish_deletion(self, group_id: str, reply: ErrorCode | StatesInTheWay) -> ErrorCode:
        """Goes on after the reply to DeleteGroup: a share group is deleted after its states."""
        if not isinstance(reply, StatesInTheWay):
            return reply
        for states in reply.states:
            await self.delete_states(group_id, states)
            await self.submit(StatesDeleted(group_id, states))
        again: ErrorCode | StatesInTheWay = await self.submit(DeleteGroup(group_id))
        if isinstance(again, StatesInTheWay):  # somebody came and left meanwhile
            raise KafkaError(ErrorCode.coordinator_not_available, f"the share group {group_id} is in use")
        return again

    async def delete_states(self, group_id: str, states: StatesOf) -> None:
        """Has the share coordinator delete them. KafkaError if one of them may be left."""
        await self._state_work.delete(group_id, states)

    async def list_groups(self) -> list[GroupListing]:
        """The groups of this broker. Raises KafkaError while a part of them is being loaded."""
        return [listing for listings in await self._runtime.ask_all(ListGroups()) for listing in listings]

    # --- decisions --------------------------------------------------------------------------------------------------

    def _begin(self, coordinator_epoch: int, work: StateWork) -> None:
        self._state_work.begin(work)

    # --- for metrics ------------------------------------------------------------------------------------------------

    def group_offsets(self) -> Iterator[tuple[str, str, int, int]]:
        """(group, topic, partition, committed offset) of every group that is loaded here."""
        for shard in self._runtime.shards():
            yield from shard.offsets()

    def groups(self) -> Iterator[GroupListing]:
        """Every loaded group with its state and the number of its members."""
        for shard in self._runtime.shards():
            yield from shard.listings()

    def loading_partitions(self) -> int:
        return self._runtime.loading()
