"""What a partition has while this broker leads it: its followers, rejected producers, and the rule of the commit.

One for each leader epoch: replicas.partition makes it when it is elected and throws it away when it resigns, so nothing
that belongs to one epoch reaches the next. A record is committed once all replicas have it that may lead after this one
(isr.py), with `headrace.flush=fsync` on disk.

Invariant: the high watermark is moved only as far as the followers of this epoch have the log.
"""

from __future__ import annotations

import asyncio

from headrace.log.reading import EMPTY, Slice
from headrace.model.image import PartitionImage
from headrace.replicas import throttle
from headrace.replicas.broker_context import BrokerContext
from headrace.replicas.committed_log import CommittedLog
from headrace.replicas.isr import Limits, may_commit
from headrace.replicas.leadership import Joins, Leadership
from headrace.replicas.office_clock import OfficeClock
from headrace.replicas.refusals import Refusals
from headrace.replicas.waiters import CommitWaiters
from headrace.wire.errors import ErrorCode, KafkaError


class LeaderRole:
    __slots__ = (
        "_broker", "_committed_log", "_deletions", "_index", "_log", "_name", "epoch", "leadership", "office",
        "refusals",
    )  # fmt: skip

    def __init__(
        self, name: str, index: int, state: PartitionImage, committed_log: CommittedLog, broker: BrokerContext
    ) -> None:
        self.epoch = state.leader_epoch
        self.leadership: Leadership | None = None
        """What is known of the other replicas; None if there are none."""
        self.refusals = Refusals()
        self.office = OfficeClock(broker.clock)
        """The time by which delayed records are due."""
        self._name = name
        self._index = index
        self._committed_log = committed_log
        self._log = committed_log.log
        self._broker = broker
        self._deletions = CommitWaiters()  # wait until all in sync have deleted, too

    def begin(self, state: PartitionImage) -> None:
        """The epoch's start is on record before the first append under it."""
        log, committed_log = self._log, self._committed_log
        log.epochs.assign(self.epoch, log.end_offset)
        self._know_replicas(state)
        log.settle(committed_log.high_watermark)
        self.commit_more()
        if committed_log.is_unsynced:
            committed_log.sync_soon()

    def go_on(self, state: PartitionImage) -> None:
        """A new state of the same leader epoch: the replicas or the ISR have changed."""
        self._know_replicas(state)
        leadership = self.leadership
        if leadership is not None:
            self._deletions.advance(leadership.lowest_start(self._log.start_offset))
        self.commit_more()
        if leadership is not None and not may_commit(state, self._log.config.min_insync_replicas):
            self._committed_log.fail_commits(
                KafkaError(
                    ErrorCode.not_enough_replicas_after_append,
                    f"{self._name} has {len(state.isr)} replicas in sync, too few to commit what was written",
                )
            )

    def _know_replicas(self, state: PartitionImage) -> None:
        now_s = self._broker.clock.monotonic()
        if len(state.replicas) == 1:
            self.leadership = None
        elif self.leadership is None:
            self.leadership = Leadership(state, self._broker.broker_id, self._log.end_offset, now_s)
        else:
            self.leadership.adopt(state, now_s)

    def end(self, error: KafkaError) -> None:
        self._deletions.fail(error)

    # --- what is committed ------------------------------------------------------------------------------------------

    def grown(self, before: int, visible_bytes: int, *, ends: bool = False) -> None:
        """Batches were appended at offset `before`; maybe they are the end of a transaction."""
        leadership, committed_log = self.leadership, self._committed_log
        if leadership is not None:
            leadership.grew(before, self._broker.clock.monotonic())
        committed_log.readers.appended(visible_bytes, ends=ends)
        log = self._log
        if log.config.fsync:
            committed_log.sync_soon()
        elif leadership is None:
            committed_log.advance(log.end_offset)
        else:
            self.commit_more()

    def commit_more(self) -> None:
        """Move the high watermark as far as it can go now."""
        leadership, committed_log = self.leadership, self._committed_log
        if leadership is None:
            committed_log.advance(committed_log.own_end)
            return
        broker = self._broker
        end = leadership.committed_end(committed_log.own_end, self._limits, broker.brokers, broker.clock.monotonic())
        if end is not None:
            committed_log.advance(end)

    def synced(self) -> None:
        """More of the log is on disk."""
        self.commit_more()
        if self._log.synced_offset < self._log.end_offset:
            self._committed_log.sync_soon()

    @property
    def _limits(self) -> Limits:
        config = self._log.config
        return Limits(self._broker.lag_s, config.replica_lag_max_messages, config.min_insync_replicas)

    @property
    def is_settling(self) -> bool:
        """A new leader that does not know yet how far its predecessor had committed (KIP-207)."""
        leadership = self.leadership
        return leadership is not None and self._committed_log.high_watermark < leadership.epoch_start

    # --- other replicas ---------------------------------------------------------------------------------------------

    def replica_fetched(self, broker_id: int, broker_epoch: int, offset: int, start: int) -> None:
        """A follower has everything from `start` to before `offset`, under this epoch."""
        leadership, end = self.leadership, self._log.end_offset
        if leadership is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"{self._name} has no replica on broker {broker_id}")
        if offset > end:
            raise KafkaError(ErrorCode.offset_out_of_range)
        follower = leadership.followers.get(broker_id)
        before = -1 if follower is None else follower.end_offset
        leadership.fetched(broker_id, broker_epoch, offset, end, self._broker.clock.monotonic(), start)
        self._deletions.advance(leadership.lowest_start(self._log.start_offset))
        if offset != before:
            self.commit_more()

    def read_as_replica(self, broker_id: int, offset: int, max_bytes: int, *, at_least_one: bool) -> Slice:
        """Everything that is stored, committed or not; to a replica that catches up, as fast as the throttle allows."""
        log, leadership, broker = self._log, self.leadership, self._broker
        catches_up = leadership is not None and broker_id not in leadership.state.isr
        if not catches_up or not throttle.names(log.config.leader_throttled, self._index, broker.broker_id):
            return log.read(offset, max_bytes, log.end_offset, at_least_one=at_least_one)
        if not broker.leader_throttle.is_open:
            return EMPTY
        max_bytes = min(max_bytes, broker.leader_throttle.bytes_per_s)
        found = log.read(offset, max_bytes, log.end_offset, at_least_one=at_least_one)
        broker.leader_throttle.passed(found.size)
        return found

    def isr_change_due(self) -> tuple[PartitionImage, Joins] | None:
        """See `Leadership.change_due`."""
        if self.leadership is None:
            return None
        committed_log, broker = self._committed_log, self._broker
        return self.leadership.change_due(
            committed_log.own_end,
            committed_log.high_watermark,
            self._limits,
            broker.brokers,
            broker.clock.monotonic(),
        )

    def deleted_everywhere(self, before: int) -> asyncio.Future[None] | None:
        """None if no member of the ISR has records before this offset, else a future that completes then."""
        leadership = self.leadership
        if leadership is None or leadership.lowest_start(self._log.start_offset) >= before:
            return None
        return self._deletions.wait_for(before - 1)
