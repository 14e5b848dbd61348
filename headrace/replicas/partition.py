"""One partition on this broker: its log, its role, and how far it is committed.

Invariant, checked where the two are made: log start <= last stable offset <= high watermark <= log end. Neither goes
back while this broker leads. With `headrace.flush=fsync` a record counts only once it is on disk. Records from the last
stable offset on belong to transactions that are open, or come after such records: read_committed readers wait for them.

Called by `replicas.host`; appends check role and epoch and write with no await in between.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

from headrace.log.partition_log import Appended, PartitionLog
from headrace.log.reading import Slice
from headrace.model.topic_config import TopicConfig
from headrace.model.transaction_end import TransactionEnd
from headrace.replicas.waiters import CommitWaiters, FetchWaiters, Wanting
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.clock import Clock

Synced = Callable[[PartitionLog], "asyncio.Future[None]"]


class Partition:
    def __init__(self, topic: str, topic_id: uuid.UUID, index: int, log: PartitionLog, clock: Clock, sync: Synced):
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_epoch = -1
        self.leads = False
        self.in_sync = 1  # replicas that are, this one among them
        self.alone = True  # there is no other replica
        self.fetchers = FetchWaiters()
        self.stable_fetchers = FetchWaiters()  # of readers that see committed transactions only
        self.ends = 0  # of transactions, that were written here
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self._clock = clock
        self._sync = sync
        self._syncing = False
        self._high_watermark = log.synced_offset if log.config.fsync else log.end_offset
        self._stable_seen = 0  # how far the waiting read_committed readers know of
        self._commits = CommitWaiters()

    # --- role -------------------------------------------------------------------------------------------------------

    def lead(self, epoch: int) -> None:
        """Serve as leader under `epoch`. The epoch's start is on record before the first append under it."""
        if self.leads and self.leader_epoch == epoch:
            return
        self.log.epochs.assign(epoch, self.log.end_offset)
        self.leader_epoch = epoch
        self.leads = True
        self.log.settle(self._high_watermark)
        self._raise_high_watermark()

    def resign(self, error: KafkaError) -> None:
        """Stop serving: whoever waits is told why."""
        self.leads = False
        self._commits.fail(error)
        self._wake_fetchers()

    def check_leader(self, known_epoch: int) -> None:
        """Fence a request that believes in another epoch (KIP-320); -1 means that it does not say."""
        if not self.leads:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        if known_epoch >= 0 and known_epoch != self.leader_epoch:
            stale = known_epoch < self.leader_epoch
            raise KafkaError(ErrorCode.fenced_leader_epoch if stale else ErrorCode.unknown_leader_epoch)

    def check_enough_replicas(self) -> None:
        """Refuse acks=all before the append when fewer replicas are in sync than the topic asks for."""
        wanted = self.log.config.min_insync_replicas
        if self.in_sync < wanted:
            raise KafkaError(
                ErrorCode.not_enough_replicas,
                f"{self.topic}-{self.index} has {self.in_sync} replicas in sync, min.insync.replicas is {wanted}",
            )

    # --- writing ----------------------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        start, end = self.log.start_offset, self._high_watermark
        unstable = self.log.first_unstable_offset(end)
        if unstable is None:
            return end
        stable = max(start, min(unstable, end))
        assert stable <= end, "last stable offset outside the log"
        return stable

    def append(self, records: memoryview, *, internal: bool = False, transactional: bool = False) -> Appended:
        """Write produced batches; they are visible once committed."""
        if not self.leads:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        appended = self.log.append(
            records, self.leader_epoch, now_ms=self._clock.now_ms(), internal=internal, transactional=transactional
        )
        if not appended.duplicate:
            self.messages_in += appended.last_offset - appended.base_offset + 1
            self.bytes_in += len(records)
            self._grown(len(records))
        return appended

    def append_end(self, end: TransactionEnd) -> Appended:
        """Write the end of a producer's transaction. One that is here already does no harm."""
        if not self.leads:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        appended = self.log.append_marker(
            end.producer_id,
            end.producer_epoch,
            end.coordinator_epoch,
            end.commit,
            self.leader_epoch,
            strict=end.strict,
            now_ms=self._clock.now_ms(),
        )
        self.ends += 1
        if not appended.duplicate:
            self._grown(0)
        return appended

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        return self.log.has_open_transaction(producer_id, epoch)

    def _grown(self, size: int) -> None:
        if self.log.config.fsync:
            self._sync_soon()
        else:
            self._set_high_watermark(self.log.end_offset)
        if self.fetchers:
            self.fetchers.arrived(size)
        if self.stable_fetchers and self.last_stable_offset > self._stable_seen:
            self._stable_seen = self.last_stable_offset
            if size:
                self.stable_fetchers.arrived(size)
            else:
                self.stable_fetchers.wake_all()  # all of a transaction at once, however much that is

    def committed(self, appended: Appended) -> asyncio.Future[None] | None:
        """None when the records are committed already, else a future of that moment."""
        if appended.last_offset < self._high_watermark:
            return None
        return self._commits.wait_for(appended.last_offset)

    @property
    def commits_at_once(self) -> bool:
        """Whether an append is committed when it returns."""
        config = self.log.config
        return self.alone and not config.fsync and config.min_insync_replicas <= 1

    def stored(self, appended: Appended) -> asyncio.Future[None] | None:
        """None when this broker alone holds the records as safely as the topic asks, else a future of that moment."""
        return self.committed(appended) if self.log.config.fsync else None

    def _sync_soon(self) -> None:
        """Group commit: one sync at a time, which covers everything written before it started."""
        if not self._syncing:
            self._syncing = True
            self._sync(self.log).add_done_callback(self._on_synced)

    def _on_synced(self, synced: asyncio.Future[None]) -> None:
        self._syncing = False
        if synced.cancelled() or synced.exception() is not None:
            self.resign(KafkaError(ErrorCode.kafka_storage_error, f"{self.log.directory}: the disk failed to sync"))
            return
        self._raise_high_watermark()
        if self.leads and self.log.synced_offset < self.log.end_offset:
            self._sync_soon()

    def _raise_high_watermark(self) -> None:
        self._set_high_watermark(self.log.synced_offset if self.log.config.fsync else self.log.end_offset)

    def _set_high_watermark(self, offset: int) -> None:
        if offset <= self._high_watermark:
            return
        assert self.log.start_offset <= offset <= self.log.end_offset, "high watermark outside the log"
        self._high_watermark = offset
        self.log.settle(offset)
        self._commits.advance(offset)
        if self.log.config.fsync:
            self._wake_fetchers()

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool, stable: bool = False) -> Slice:
        """Committed bytes from `offset` on; KafkaError(offset_out_of_range) outside of what is stored. With `stable`
        only what no open transaction can change any more."""
        if offset > self._high_watermark:
            raise KafkaError(ErrorCode.offset_out_of_range)
        end = self.last_stable_offset if stable else self._high_watermark
        return self.log.read(offset, max_bytes, end, at_least_one=at_least_one)

    def wait(self, wanting: Wanting, *, stable: bool) -> None:
        """`wanting` is told of what comes, until it leaves."""
        if stable:
            self._stable_seen = max(self._stable_seen, self.last_stable_offset)
            self.stable_fetchers.enter(wanting)
        else:
            self.fetchers.enter(wanting)

    def leave(self, wanting: Wanting) -> None:
        self.fetchers.leave(wanting)
        self.stable_fetchers.leave(wanting)

    def _wake_fetchers(self) -> None:
        self.fetchers.wake_all()
        self.stable_fetchers.wake_all()

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch not above `epoch`, the offset where it ended); (-1, -1) if nothing is known that far back."""
        return self.log.epochs.end_offset_for(epoch, self.log.end_offset) or (-1, -1)

    def diverging(self, offset: int, last_epoch: int) -> tuple[int, int] | None:
        """Where the history of a reader that stands at `offset`, its last record of `last_epoch`, parts from ours."""
        epoch, end = self.end_of_epoch(last_epoch)
        if epoch == -1:
            raise KafkaError(ErrorCode.offset_out_of_range)
        return (epoch, end) if epoch < last_epoch or end < offset else None

    def delete_records(self, before: int) -> int:
        """Move the start of the log; -1 means up to the high watermark. The new start offset."""
        target = self._high_watermark if before == -1 else before
        if not 0 <= target <= self._high_watermark:
            raise KafkaError(ErrorCode.offset_out_of_range)
        self.log.advance_start(target)
        self._wake_fetchers()
        return self.log.start_offset

    def reconfigure(self, config: TopicConfig) -> None:
        self.log.reconfigure(config)
        self._raise_high_watermark()
        if config.fsync and self.log.synced_offset < self.log.end_offset:
            self._sync_soon()
