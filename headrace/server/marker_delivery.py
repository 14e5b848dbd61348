"""Writes the commit or abort markers of transactions to all of their partitions.

Plugged into the transaction coordinator, which decides, and into the WriteTxnMarkers handler, which receives the
decisions of other coordinators and of administrators. A partition of `__consumer_offsets` is the group coordinator's
journal: there the marker goes through that coordinator, because it changes its state. Partitions that other brokers
lead are reached through `Elsewhere`. Invariant: delivery is retried until every partition has its marker or no longer
exists; writing a marker twice does no harm.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.coordinators.transactions.markers import Mark
from headrace.model.image import GROUP_OFFSETS_TOPIC
from headrace.model.transaction_end import TransactionEnd
from headrace.replicas.host import ReplicaHost
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.clock import Clock

logger = logging.getLogger(__name__)

RETRY_S = 0.1

# The partition was deleted; or it knows a later epoch of the producer, so the transaction has already ended there.
_DONE = {ErrorCode.unknown_topic_or_partition, ErrorCode.invalid_producer_epoch}


class Elsewhere(Protocol):
    """Sends markers to leaders on other brokers."""

    def write(self, mark: Mark) -> asyncio.Future[None] | None:
        """One marker, one attempt; None if the partition is led here. KafkaError if it is deleted or has no leader."""
        ...


class MarkerDelivery:
    def __init__(
        self, host: ReplicaHost, groups: GroupCoordinator, clock: Clock, elsewhere: Elsewhere | None = None
    ) -> None:
        """`elsewhere` is None for a single broker without a cluster."""
        self._host = host
        self._groups = groups
        self._clock = clock
        self._elsewhere = elsewhere

    def write(self, marks: Sequence[Mark]) -> asyncio.Future[None]:
        """Starts immediately; done when every partition has its marker or is deleted. Fails with KafkaError if another
        coordinator has taken over, which then delivers the markers."""
        delivered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._deliver(marks, delivered, attempt=1)
        return delivered

    def write_one(self, topic: str, partition: int, end: TransactionEnd) -> asyncio.Future[None] | None:
        """One marker, one attempt. None if it is committed already, else a future of that. Raises KafkaError."""
        if topic == GROUP_OFFSETS_TOPIC:
            return self._groups.end_transaction(partition, end)
        hosted = self._host.find(topic, partition)
        return hosted.committed(hosted.append_end(end))

    def _write_here(self, mark: Mark) -> asyncio.Future[None] | None:
        try:
            return self.write_one(mark.topic, mark.partition, mark.end)
        except KafkaError as error:
            if self._elsewhere is not None and error.code is ErrorCode.unknown_topic_or_partition:
                raise KafkaError(ErrorCode.not_leader_or_follower) from error  # it exists, but not here at the moment
            raise

    def _deliver(self, marks: Sequence[Mark], delivered: asyncio.Future[None], attempt: int) -> None:
        if delivered.done():
            return
        failed = list[Mark]()
        waiting = list[tuple[Mark, asyncio.Future[None]]]()
        for mark in marks:
            try:
                written = None if self._elsewhere is None else self._elsewhere.write(mark)
                if written is None:
                    written = self._write_here(mark)
                if written is not None and written.done():
                    written.result()
                elif written is not None:
                    waiting.append((mark, written))
            except KafkaError as error:
                if _must_repeat(mark, error, delivered, attempt):
                    failed.append(mark)
        if delivered.done():
            return
        if waiting:
            collected = asyncio.gather(*(written for _, written in waiting), return_exceptions=True)
            collected.add_done_callback(lambda done: self._collect(waiting, failed, delivered, attempt))
        else:
            self._finish(failed, delivered, attempt)

    def _collect(
        self,
        waited: list[tuple[Mark, asyncio.Future[None]]],
        failed: list[Mark],
        delivered: asyncio.Future[None],
        attempt: int,
    ) -> None:
        for mark, written in waited:
            error = None if written.cancelled() else written.exception()
            if isinstance(error, KafkaError) and _must_repeat(mark, error, delivered, attempt):
                failed.append(mark)
        self._finish(failed, delivered, attempt)

    def _finish(self, failed: list[Mark], delivered: asyncio.Future[None], attempt: int) -> None:
        if failed:
            self._clock.call_later(RETRY_S, self._deliver, failed, delivered, attempt + 1)
        elif not delivered.done():
            delivered.set_result(None)


def _must_repeat(mark: Mark, error: KafkaError, delivered: asyncio.Future[None], attempt: int) -> bool:
    if error.code is ErrorCode.transaction_coordinator_fenced:
        if not delivered.done():
            delivered.set_exception(error)
        return False
    if error.code in _DONE:
        return False
    if attempt == 1:
        logger.warning("no transaction marker in %s-%d yet (%s); retrying", mark.topic, mark.partition, error)
    return True
