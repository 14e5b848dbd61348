"""A partition's log, how far it is committed and synced, and the requests that wait for that.

Every partition has one, whatever its role. How far the log is committed is decided elsewhere: a leader's high watermark
follows from what its followers have (leader_role.py), a follower's from what its leader says (followed_log.py). With
`headrace.flush=fsync` a record counts once it is on disk; syncs are requested here, and the owner learns of their
outcome through the two callables that it hands in.

Invariant, asserted where the high watermark is set (`advance`, `cut_back`) and where the last stable offset is derived:
log start <= last stable offset <= high watermark <= log end. On a leader neither of the two goes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.log.partition_log import PartitionLog
from headrace.replicas.broker_context import Sync
from headrace.replicas.waiters import CommitWaiters, Readers
from headrace.wire.errors import KafkaError
from headrace.world.clock import Clock


class CommittedLog:
    __slots__ = (
        "_commits", "_on_sync_failed", "_on_synced", "_sync", "_syncing", "_syncs", "high_watermark", "log", "readers",
    )  # fmt: skip

    def __init__(
        self,
        log: PartitionLog,
        known: int,
        clock: Clock,
        sync: Sync,
        on_synced: Callable[[], None],
        on_sync_failed: Callable[[str], None],
    ) -> None:
        """`known` is how far the log was known to be committed before the last stop."""
        self.log = log
        self.readers = Readers(clock)
        self.high_watermark = max(log.start_offset, min(known, log.end_offset))
        """Set here alone."""
        log.settle(self.high_watermark)
        self.readers.appended(log.end_offset - self.high_watermark)  # at least a byte a record, of earlier starts
        self._sync = sync
        self._on_synced = on_synced
        self._on_sync_failed = on_sync_failed
        self._commits = CommitWaiters()
        self._syncs = CommitWaiters()
        self._syncing = False

    # --- how far ----------------------------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        return self.stable_end()

    def stable_end(self) -> int:
        """The last stable offset, as a plain call: a property costs as much again, and every fetch asks twice."""
        end = self.high_watermark
        unstable = self.log.first_unstable_offset(end)
        if unstable is None:
            return end
        stable = max(self.log.start_offset, min(unstable, end))
        assert stable <= end, "last stable offset outside the log"
        return stable

    @property
    def own_end(self) -> int:
        """How far this replica has the log, as safely as the topic asks."""
        return self.log.synced_offset if self.log.config.fsync else self.log.end_offset

    def advance(self, offset: int) -> None:
        """Everything before `offset` is committed. Nothing happens if that is known."""
        before = self.high_watermark
        if offset <= before:
            return
        log = self.log
        end = log.end_offset
        assert log.start_offset <= offset <= end, "high watermark outside the log"
        self.high_watermark = offset
        log.settle(offset)
        self._commits.advance(offset)
        self.readers.committed(before, offset, end, self)

    def cut_back(self, end: int) -> int:
        """A follower's log ends at `end` from now on. How many committed records that costs."""
        start, before = self.log.start_offset, self.high_watermark
        self.high_watermark = max(start, min(before, end))
        assert start <= self.high_watermark <= self.log.end_offset, "high watermark outside the log"
        return max(0, before - end)

    # --- waiting for it ---------------------------------------------------------------------------------------------

    def committed_through(self, last_offset: int) -> asyncio.Future[None] | None:
        """None if the record at `last_offset` is committed, else a future that completes when it is."""
        return None if last_offset < self.high_watermark else self._commits.wait_for(last_offset)

    def stored_through(self, last_offset: int) -> asyncio.Future[None] | None:
        """None if this replica has the record as safely as the topic asks, else a future that completes then."""
        if not self.log.config.fsync or last_offset < self.log.synced_offset:
            return None
        return self._syncs.wait_for(last_offset)

    def fail_commits(self, error: KafkaError) -> None:
        """What waits for a commit will not get it."""
        self._commits.fail(error)

    def fail(self, error: KafkaError) -> None:
        """This broker does not lead any more, or the log is gone."""
        self._commits.fail(error)
        self._syncs.fail(error)
        self.readers.wake_all()

    # --- syncing ----------------------------------------------------------------------------------------------------

    @property
    def is_unsynced(self) -> bool:
        """The topic wants records on disk, and some are not there yet."""
        return self.log.config.fsync and self.log.synced_offset < self.log.end_offset

    def sync_soon(self) -> None:
        """Group commit: one sync at a time, which covers everything written before it started."""
        if not self._syncing:
            self._syncing = True
            self._sync(self.log).add_done_callback(self._synced)

    def _synced(self, synced: asyncio.Future[None]) -> None:
        self._syncing = False
        if synced.cancelled() or synced.exception() is not None:
            self._on_sync_failed(f"{self.log.directory}: the disk failed to sync")
            return
        self._syncs.advance(self.log.synced_offset)
        self._on_synced()
