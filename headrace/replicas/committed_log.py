"""How far a partition is committed and synced, and those who wait for that: the lower half of partition.py.

A leader's high watermark follows from what its followers have (leadership.py), a follower's from what its leader says.
What holds: log start <= last stable offset <= high watermark <= log end, and on a leader neither of the two goes back.
With `headrace.flush=fsync` a record counts once it is on disk.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from headrace.log.appended import Appended
from headrace.log.partition_log import PartitionLog
from headrace.replicas.home import Home
from headrace.replicas.isr import Limits
from headrace.replicas.leadership import Leadership
from headrace.replicas.waiters import CommitWaiters, Readers


class CommittedLog(ABC):
    def __init__(self, log: PartitionLog, home: Home, known: int) -> None:
        """`known` is how far the log was known to be committed before the last stop."""
        self.log = log
        self.leads = False
        self.alone = True  # there is no other replica
        self.leadership: Leadership | None = None  # while it leads and is not alone
        self.readers = Readers(home.clock)
        self._home = home
        self._high_watermark = max(log.start_offset, min(known, log.end_offset))
        self._commits = CommitWaiters()
        self._syncs = CommitWaiters()
        self._syncing = False

    @abstractmethod
    def disk_failed(self, why: str) -> None:
        """Nobody knows any more what of the log is on disk."""

    # --- how far ----------------------------------------------------------------------------------------------------

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

    @property
    def own_end(self) -> int:
        """How far this replica has the log, as safely as the topic asks."""
        return self.log.synced_offset if self.log.config.fsync else self.log.end_offset

    @property
    def limits(self) -> Limits:
        config = self.log.config
        return Limits(self._home.lag_s, config.replica_lag_max_messages, config.min_insync_replicas)

    def commit_more(self) -> None:
        """A leader's high watermark, as far as it can go now."""
        if not self.leads:
            return
        leadership = self.leadership
        if leadership is None:
            self._set_high_watermark(self.own_end)
            return
        end = leadership.committed_end(self.own_end, self.limits, self._home.brokers, self._home.clock.monotonic())
        if end is not None:
            self._set_high_watermark(end)

    def _set_high_watermark(self, offset: int) -> None:
        if offset <= self._high_watermark:
            return
        assert self.log.start_offset <= offset <= self.log.end_offset, "high watermark outside the log"
        before, self._high_watermark = self._high_watermark, offset
        self.log.settle(offset)
        self._commits.advance(offset)
        self.readers.committed(before, offset, self.log.end_offset, self)

    @property
    def is_settling(self) -> bool:
        """A new leader that does not know yet how far its predecessor had committed (KIP-207)."""
        return self.leadership is not None and self._high_watermark < self.leadership.epoch_start

    # --- waiting for it ---------------------------------------------------------------------------------------------

    def committed(self, appended: Appended) -> asyncio.Future[None] | None:
        """None when the records are committed already, else a future of that moment."""
        return self.committed_through(appended.last_offset)

    def committed_through(self, last_offset: int) -> asyncio.Future[None] | None:
        return None if last_offset < self._high_watermark else self._commits.wait_for(last_offset)

    @property
    def commits_at_once(self) -> bool:
        """Whether an append is committed when it returns."""
        config = self.log.config
        return self.alone and not config.fsync and config.min_insync_replicas <= 1

    def stored(self, appended: Appended) -> asyncio.Future[None] | None:
        """None when this broker alone holds the records as safely as the topic asks, else a future of that moment."""
        if not self.log.config.fsync or appended.last_offset < self.log.synced_offset:
            return None
        return self._syncs.wait_for(appended.last_offset)

    def _sync_soon(self) -> None:
        """Group commit: one sync at a time, which covers everything written before it started."""
        if not self._syncing:
            self._syncing = True
            self._home.sync(self.log).add_done_callback(self._on_synced)

    def _on_synced(self, synced: asyncio.Future[None]) -> None:
        self._syncing = False
        if synced.cancelled() or synced.exception() is not None:
            self.disk_failed(f"{self.log.directory}: the disk failed to sync")
            return
        self._syncs.advance(self.log.synced_offset)
        if self.leads:
            self.commit_more()
            if self.log.synced_offset < self.log.end_offset:
                self._sync_soon()
