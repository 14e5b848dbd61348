"""Markers: the end of a transaction, written to every partition that it touched.

The shard returns a `Decision` once it is durable. The coordinator passes it to `Markers`, which is implemented by the
component that reaches the partitions' leaders. Writing a marker twice is harmless, so it is retried whenever the result
is unknown.
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
        """Starts immediately, in call order. Retried until every partition has its marker or is deleted."""
        ...
