"""Markers: the end of a transaction, written into every partition that it touched.

The shard hands out a `Decision` once it is durable; the coordinator has it carried out by whoever reaches the leaders
of the partitions, and that is what `Markers` asks for. A marker that comes twice does no harm, so whoever is in doubt
writes it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from headrace.model.topic_partition import TopicPartition
from headrace.model.transaction_end import TransactionEnd


class Decision(Struct, frozen=True):
    """How a transaction ends, for all its partitions."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    version: int  # transaction.version
    partitions: tuple[TopicPartition, ...]

    def marks(self, coordinator_epoch: int) -> list[Mark]:
        end = TransactionEnd(self.producer_id, self.producer_epoch, coordinator_epoch, self.commit, self.version)
        return [Mark(topic, partition, end) for topic, partition in self.partitions]


class Mark(Struct, frozen=True):
    """One marker in one partition."""

    topic: str
    partition: int
    end: TransactionEnd


class Markers(Protocol):
    def write(self, marks: Sequence[Mark]) -> asyncio.Future[None]:
        """Starts at once, in call order. Done when every partition has its marker or is gone; tried until then."""
        ...
