"""How a leader stores its ISR: one change at a time, and what it does when the outcome is unknown.

One for each partition; replicas.partition calls `review` whenever the set may have to change, and replicas.host every
second for all. What should be written follows from leadership.py; the cluster room does the writing (`IsrStore`).

Invariant: a change whose outcome is unknown stays in flight until a newer state is seen, it was rejected, or this
broker has stopped leading.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from msgspec.structs import replace

from headrace.model.image import PartitionImage
from headrace.replicas.broker_context import BrokerContext
from headrace.replicas.leadership import Joins, Leadership
from headrace.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

_TRY_AGAIN_S = 1.0


class LedPartition(Protocol):
    """What is needed here of a partition."""

    topic: str

    @property
    def leads(self) -> bool: ...

    @property
    def leadership(self) -> Leadership | None: ...

    def isr_change_due(self) -> tuple[PartitionImage, Joins] | None: ...

    def apply(self, state: PartitionImage) -> None: ...

    def resign(self, error: KafkaError) -> None: ...


class IsrChanges:
    def __init__(self, partition: LedPartition, broker: BrokerContext) -> None:
        self.shrinks = 0
        self.expands = 0
        self._partition = partition
        self._broker = broker

    def review(self) -> None:
        """Store the ISR if it has changed."""
        partition, broker = self._partition, self._broker
        leadership = partition.leadership
        if leadership is None or broker.isr_writes is None or not broker.in_touch():
            return
        due = partition.isr_change_due()
        if due is None:
            return
        wanted, joins = due
        before, after = set(leadership.state.isr), set(wanted.isr)
        logger.info("%s: replicas in sync %s, were %s", partition, sorted(after), sorted(before))
        self.shrinks += bool(before - after)
        self.expands += bool(after - before)
        leadership.wanted = wanted
        self._write(leadership, wanted, joins)

    def leave(self, state: PartitionImage) -> None:
        """Leave the ISR although this broker is alive, because its disk failed: another member will be elected."""
        own = self._broker.broker_id
        kept = {broker: epoch for broker, epoch in zip(state.isr, state.isr_epochs, strict=True) if broker != own}
        if state.leader == own and len(kept) < len(state.isr) and kept and self._broker.isr_writes is not None:
            without = replace(state, isr=tuple(kept), isr_epochs=tuple(kept.values()))
            self._broker.isr_writes.change(self._partition.topic, without, ()).add_done_callback(self._left)

    def _left(self, written: asyncio.Future[PartitionImage]) -> None:
        """Another change may have been stored first; then retry on top of that one."""
        if not written.cancelled() and written.exception() is None and not self._partition.leads:
            self._broker.clock.call_later(_TRY_AGAIN_S, self.leave, written.result())

    def _write(self, leadership: Leadership, wanted: PartitionImage, joins: Joins) -> None:
        if self._under_way(leadership, wanted) and self._broker.isr_writes is not None:
            written = self._broker.isr_writes.change(self._partition.topic, wanted, joins)
            written.add_done_callback(lambda done: self._written(done, leadership, wanted, joins))

    def _under_way(self, leadership: Leadership, wanted: PartitionImage) -> bool:
        return self._partition.leadership is leadership and leadership.wanted is wanted

    def _written(
        self, written: asyncio.Future[PartitionImage], leadership: Leadership, wanted: PartitionImage, joins: Joins
    ) -> None:
        if written.cancelled():
            return
        error = written.exception()
        if not self._under_way(leadership, wanted):
            return
        call_later = self._broker.clock.call_later
        if error is None and written.result().version > leadership.state.version:
            self._partition.apply(written.result())
        elif error is None:  # rejected, maybe because a broker that was to join has restarted
            call_later(_TRY_AGAIN_S, self._withdraw, leadership, wanted)
        elif isinstance(error, KafkaError) and error.code is ErrorCode.not_leader_or_follower:
            self._partition.resign(error)
        else:  # stored or not: both sets count until a newer state is seen
            logger.warning(
                "%s: it is unknown whether the ISR change was stored; trying again: %s", self._partition, error
            )
            call_later(_TRY_AGAIN_S, self._write, leadership, wanted, joins)

    def _withdraw(self, leadership: Leadership, wanted: PartitionImage) -> None:
        if self._under_way(leadership, wanted):
            leadership.wanted = None
            self.review()
