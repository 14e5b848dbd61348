"""The transaction coordinator as the rest of the broker sees it: one object for handlers, leadership and metrics.

Handlers submit commands; the broker reports which partitions of `__transaction_state` it leads. All decisions are in
the shards, all waiting in the runtime. This module does two things: it gets new producer ids for commands that need
one, and it executes durable decisions, partition by partition, before a transaction counts as complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Protocol

from msgspec.structs import replace

from headrace.coordinators.runtime import CoordinatorRuntime, Journal
from headrace.coordinators.transactions.commands import (
    EndTransaction,
    FreshIdNeeded,
    InitProducer,
    ListTransactions,
    MarkersWritten,
    ProducerReply,
)
from headrace.coordinators.transactions.markers import Decision, Markers
from headrace.coordinators.transactions.settings import TransactionSettings
from headrace.coordinators.transactions.shard import TransactionShard
from headrace.coordinators.transactions.transaction import Transaction
from headrace.model.image import TRANSACTION_STATE_TOPIC, ClusterImage
from headrace.wire.errors import KafkaError
from headrace.world.clock import Clock


class Topics(Protocol):
    def image(self) -> ClusterImage: ...


class TransactionCommand(Protocol):
    @property
    def transactional_id(self) -> str: ...


class TransactionCoordinator:
    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        topics: Topics,
        settings: TransactionSettings,
        markers: Markers,
        fresh_id: Callable[[], Awaitable[int]],
    ) -> None:
        """`fresh_id` returns producer ids that were never used."""
        self._topics = topics
        self._markers = markers
        self._fresh_id = fresh_id
        self._runtime = CoordinatorRuntime(
            journal,
            clock,
            lambda: TransactionShard(settings),
            self._partition_count,
            TRANSACTION_STATE_TOPIC,
            self._carry_out,
        )

    def _partition_count(self) -> int:
        topic = self._topics.image().topics.get(TRANSACTION_STATE_TOPIC)
        return len(topic.partitions) if topic is not None else 0

    async def run(self) -> None:
        """Loads partitions as they are taken over, until cancelled."""
        await self._runtime.run()

    def on_leadership(self, partition: int, leads: bool, epoch: int) -> None:
        """This broker became, or ceased to be, the leader of a partition of `__transaction_state`."""
        self._runtime.on_leadership(partition, leads, epoch)

    # --- for handlers -----------------------------------------------------------------------------------------------

    def submit(self, command: TransactionCommand) -> asyncio.Future[Any]:
        """Takes effect before it returns; the future gets the reply that the command's docstring says, or
        KafkaError."""
        return self._runtime.submit(command.transactional_id, command)

    def settle(self, command: InitProducer | EndTransaction) -> Awaitable[ProducerReply]:
        """The same, with a new producer id if one is needed. A rejection by the runtime is returned as a reply, too."""
        return self._settle(command, self.submit(command))

    async def _settle(self, command: InitProducer | EndTransaction, first: asyncio.Future[Any]) -> ProducerReply:
        try:
            reply = await first
            if isinstance(reply, FreshIdNeeded):
                reply = await self.submit(replace(command, fresh_id=await self._fresh_id()))
            assert isinstance(reply, ProducerReply)
            return reply
        except KafkaError as error:
            return ProducerReply(error.code)

    async def list_transactions(self) -> list[tuple[str, Transaction]]:
        """Those of this broker. Raises KafkaError while a part of them is being loaded."""
        return [listed for reply in await self._runtime.ask_all(ListTransactions()) for listed in reply]

    # --- for metrics ------------------------------------------------------------------------------------------------

    def transactions(self) -> Iterator[Transaction]:
        """Every transaction that is loaded here."""
        for shard in self._runtime.shards():
            yield from shard.transactions.values()

    # --- decisions --------------------------------------------------------------------------------------------------

    def _carry_out(self, coordinator_epoch: int, decision: Decision) -> None:
        written = self._markers.write(decision.marks(coordinator_epoch))
        if written.done():
            self._complete(decision, written)
        else:
            written.add_done_callback(partial(self._complete, decision))

    def _complete(self, decision: Decision, written: asyncio.Future[None]) -> None:
        """If markers were rejected, another coordinator has taken over and completes the transaction. A shard that is
        being loaded has its markers written again."""
        if not written.cancelled() and written.exception() is None:
            name, producer_id, epoch = decision.transactional_id, decision.producer_id, decision.producer_epoch
            self._runtime.tell(name, MarkersWritten(name, producer_id, epoch))
