"""A partition's folder and what of it is safe: the state of a log, syncing, checkpoints, rolling, closing.

Owns the folder `TOPIC-PARTITION`: segments, checkpoint, leader epochs and producer snapshots. The base of
partition_log.py; logs.py calls `sync` in the background.

Two locks. `_lock` guards the list of segments and the end of the log; it is held for moments, because the event loop
takes it for every append. `_sync_lock` orders those who wait for the disk, and is taken first by whoever takes both.

Everything before `synced_offset` is on stable storage, names included.
"""

from __future__ import annotations

import errno
import threading
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from headrace.log import aborted_txns, identity, recovery
from headrace.log import checkpoint as checkpoints
from headrace.log.dedup import Dedup
from headrace.log.doomed import DoomedFiles
from headrace.log.reading import segment_at
from headrace.log.segment import Segment, Shelf, segment_path
from headrace.log.tail import LogTail
from headrace.model.image import INTERNAL_TOPICS
from headrace.model.topic_config import TopicConfig
from headrace.wire.errors import ErrorCode, KafkaError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CHECKPOINT_BYTES = 16 << 20  # that much may be scanned again after a crash although it was synced


class Syncing(Struct):
    """One sync of a log: whose files it covers, and what is to be stored about it once they are synced."""

    target: int  # the end of what will be safe
    segments: tuple[Segment, ...]
    active: Segment
    position: int  # its size
    behind: list[Segment]  # whose stored indexes are old
    aborted: list[aborted_txns.Unsaved]
    clean: bool
    checkpoint: bool = False
    snapshot: bytes | None = None
    index: tuple[bytes, bytes] | None = None


class DurableLog(LogTail):
    # Python keeps the values of up to 30 attributes beside an object, and makes a table for each object that has more:
    # another 1.3 KB per log, and slower to find one's way in.
    __slots__ = (
        "_checkpoint", "_folder_unsynced", "_names_unsynced", "_snapshots", "_sync_lock", "abandoned",
        "aborted_txns", "closed_cleanly", "committed_offset", "cuts", "directory", "doomed", "duplicates_dropped",
        "ids_forgotten", "internal", "next_trim_ms", "scanned_bytes", "synced_offset", "thinned", "topic_id",
    )  # fmt: skip

    def __init__(
        self, shelf: Shelf, loaded: recovery.Loaded, config: TopicConfig, unsynced: set[DurableLog], now_ms: int
    ) -> None:
        self.directory: Path = loaded.directory
        self.topic_id: uuid.UUID = loaded.topic_id
        place = identity.parse_folder_name(loaded.directory.name)
        self.internal = place is not None and place[0] in INTERNAL_TOPICS
        self.config = config
        self.segments: tuple[Segment, ...] = tuple(loaded.segments)
        self.start_offset = loaded.start_offset
        self.end_offset = loaded.end_offset
        self.synced_offset = loaded.end_offset if loaded.clean else loaded.checkpoint.recovery_point
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.aborted_txns = loaded.aborted_txns
        # Some batch may have fewer records than offsets (visible.py). A checkpoint of an earlier version does not know
        # that of a topic with deduplication.
        self.thinned = loaded.thinned or config.dedup_window_ms > 0
        self.dedup: Dedup | None = None  # on topics that ask for it
        self.duplicates_dropped = 0  # records that were acknowledged and not stored
        self.ids_forgotten = 0  # ids that left before their time for want of memory
        self.committed_offset: int | None = None  # the high watermark, once somebody has told
        self.offline: OSError | None = loaded.damage
        self.doomed = DoomedFiles(shelf.disk)
        self.scanned_bytes = loaded.scanned_bytes
        self.closed_cleanly = False
        self.next_trim_ms = 0  # before that nothing can have become too old
        self.abandoned = False
        self.cuts = 0  # truncations since the log was opened
        self._shelf = shelf
        self._unsynced = unsynced
        self._checkpoint = loaded.checkpoint
        self._snapshots = loaded.snapshots
        self.bytes_since_checkpoint = 0
        self._newest_offset = self._newest_position = -1
        self._newest = None
        self._followed = False
        self._names_unsynced = not loaded.clean
        self._folder_unsynced = loaded.checkpoint.generation == 0
        self._changed = loaded.scanned_bytes > 0  # since a checkpoint that says so
        self._now_ms = now_ms
        self._lock = threading.RLock()
        self._sync_lock = threading.RLock()

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def topic_partition(self) -> str:
        return self.directory.name

    def reconfigure(self, config: TopicConfig) -> None:
        self.config = config
        self.next_trim_ms = 0

    # -- rolling ------------------------------------------------------------------------------------------------------

    def roll_if_due(self, now_ms: int) -> bool:
        """Start a new segment if the active one is old; for compacted topics also if its records have waited enough."""
        with self._lock:
            segment = self.segments[-1]
            limit_ms = self.config.segment_ms
            if self.config.compacted:
                limit_ms = min(limit_ms, self.config.max_compaction_lag_ms)
            if self.offline is not None or not segment.size or now_ms - segment.first_append_ms < limit_ms:
                return False
            self._roll(now_ms)
            return True

    def roll(self, now_ms: int) -> None:
        """Start a new segment now, unless the active one is empty."""
        with self._lock:
            if self.segments[-1].size:
                self._roll(now_ms)

    def _roll(self, now_ms: int) -> Segment:
        old = self.segments[-1]
        fresh = Segment(self._shelf, self.directory, self.end_offset, 0, self.config.index_interval_bytes)
        fresh.file.create()
        self._write_snapshot(self.end_offset, self.producers.encode())
        fresh.first_append_ms = now_ms
        fresh.activate(self.end_offset)
        old.seal()
        self._newest = None
        self.segments = (*self.segments, fresh)
        self._names_unsynced = True
        self._unsynced.add(self)
        return fresh

    # -- durability ---------------------------------------------------------------------------------------------------

    def sync(self, *, checkpoint: bool = False, clean: bool = False) -> None:
        """Everything appended so far is on stable storage when this returns; blocks.

        An error takes the log offline and is never retried: the kernel may have dropped the pages that it could not
        write, and a second attempt would report success. With `checkpoint` the recovery point moves on as well.
        """
        with self.syncing(checkpoint=checkpoint, clean=clean) as due:
            for segment in due.segments:
                try:
                    with segment.file as file:
                        file.sync()
                except OSError as error:
                    self.sync_failed(segment, error)
            self.end_sync(due)

    # In steps, for who syncs the files of many logs together (flushing.py): begin, sync the files, end.

    @contextmanager
    def syncing(self, *, checkpoint: bool = False, clean: bool = False) -> Iterator[Syncing]:
        """Nobody else syncs this log within the block."""
        with self._sync_lock:
            yield self._begin_sync(checkpoint=checkpoint, clean=clean)

    def _begin_sync(self, *, checkpoint: bool, clean: bool) -> Syncing:
        with self._lock:
            if self.offline is not None:
                raise self.offline
            self._unsynced.discard(self)
            active = self.segments[-1]
            first = segment_at(self.segments, max(self.synced_offset, self.start_offset))
            due = Syncing(
                target=self.end_offset,
                segments=self.segments[first:],
                active=active,
                position=active.size,
                behind=[segment for segment in self.segments if segment.index_stale and segment is not active],
                aborted=self._unsaved_aborted(),
                clean=clean,
            )
            if checkpoint or self.bytes_since_checkpoint >= _CHECKPOINT_BYTES:
                self.bytes_since_checkpoint = 0
                due.checkpoint = True
                due.snapshot = self.producers.encode() if self.producers else None
                due.index = active.encode_index() if active.index_stale else None
            return due

    def sync_failed(self, segment: Segment, error: OSError) -> None:
        """The file of this segment could not be synced; raises `error` if the segment is still part of the log."""
        if isinstance(error, FileNotFoundError) and segment not in self.segments:
            return  # retention was faster
        self.offline = error
        raise error

    def end_sync(self, due: Syncing) -> None:
        """The files are synced: make the names durable too, and remember how far."""
        self._check_not_abandoned()
        try:
            self._save_aborted(due.aborted)
            self._sync_names()
        except OSError as error:
            if error.errno not in _NO_ROOM:
                self.offline = error
            self._unsynced.add(self)
            raise
        self._check_not_abandoned()
        self.synced_offset = due.target
        self._write_ids()
        for segment in due.behind:
            segment.store_index(segment.encode_index())
        if not due.checkpoint:
            return
        active = due.active
        if due.index is not None:
            active.store_index(due.index)
        if due.snapshot is not None:
            self._write_snapshot(due.target, due.snapshot)
        moved = replace(
            self._checkpoint,
            recovery_point=due.target,
            segment=active.base_offset,
            position=due.position,
            first_append_ms=active.first_append_ms,
            has_producers=due.snapshot is not None,
            clean=due.clean,
            thinned=self.thinned,
        )
        checkpoints.hint(self._shelf.disk, self.directory, moved)
        self._prune_snapshots({due.target, self._checkpoint.recovery_point})
        self._checkpoint = moved

    def _check_not_abandoned(self) -> None:
        """Before writing names after a wait for the disk: the topic may be deleted, and the folder another topic's."""
        if self.abandoned and self.offline is not None:
            raise self.offline

    def _unsaved_aborted(self) -> list[aborted_txns.Unsaved]:
        """Called with the lock held."""
        txns = self.aborted_txns
        return txns.unsaved([segment.base_offset for segment in self.segments]) if len(txns) > txns.saved else []

    def _write_ids(self) -> None:
        with self._lock:
            if self.dedup is None:
                return
            unwritten = self.dedup.take(self.end_offset, self._now_ms, self.producers.first_unstable())
        unwritten.write()

    def _save_aborted(self, unsaved: list[aborted_txns.Unsaved]) -> None:
        if unsaved:
            aborted_txns.save(self._shelf.disk, self.directory, unsaved)
            self.aborted_txns.saved += sum(piece.length for piece in unsaved)
            self._names_unsynced = True

    def _rewrite_aborted(self, first: int, following: int, dropped_markers: Collection[int]) -> None:
        """Make one file of aborted transactions for what is to become one segment, and forget those of which nothing is
        left. Nothing is lost if the swap does not come about: their records went in an earlier run."""
        with self._lock:
            unsaved = self._unsaved_aborted()
        try:
            self._save_aborted(unsaved)
            with self._lock:
                self.aborted_txns.drop(dropped_markers)
                entries = self.aborted_txns.encoded(first, following)
            aborted_txns.replace_file(self._shelf.disk, self.directory, first, entries)
        except OSError as error:
            raise self._write_failed(error) from error

    def _sync_names(self) -> None:
        """Make names and epochs durable, and with the first records of a partition its folder and its identity."""
        if not self._names_unsynced and not self.epochs.changed:
            return
        self._names_unsynced = False
        try:
            if self._folder_unsynced:
                self._checkpoint = checkpoints.settle(self._shelf.disk, self.directory, self._checkpoint)
                identity.sync(self._shelf.disk, self.directory)
                self._shelf.disk.sync_dir(self.directory.parent)
                self._folder_unsynced = False
            if self.epochs.changed:
                self.epochs.save(self._shelf.disk, self.directory)  # syncs the folder as well
            else:
                self._shelf.disk.sync_dir(self.directory)
        except OSError:
            self._names_unsynced = self.epochs.changed = True
            raise

    def close(self, *, clean: bool = True) -> None:
        """Blocks. After a clean close the next open needs no scan."""
        with self._sync_lock:
            if clean and self.offline is None:
                if self._changed:
                    self.sync(checkpoint=True, clean=True)
                self.closed_cleanly = True
            self.abandon()

    def abandon(self) -> None:
        """Refuse everything from now on and give the files back."""
        with self._lock:
            self.abandoned = True
            for segment in self.segments:
                segment.file.close()
            if self.offline is None:
                self.offline = OSError(errno.EBADF, "the log is closed", str(self.directory))

    def _write_snapshot(self, offset: int, encoded: bytes) -> None:
        """Best effort: without a snapshot the state is made from the batches."""
        try:
            file = self._shelf.disk.open(segment_path(self.directory, offset, ".snapshot"), create=True)
            try:
                file.truncate(0)
                file.append((encoded,))
            finally:
                file.close()
        except OSError:
            return
        if offset not in self._snapshots:
            self._snapshots.append(offset)

    def _prune_snapshots(self, needed: set[int]) -> None:
        """Keep those that a crash or a truncation may ask for: at the recovery points and where segments start."""
        needed |= {segment.base_offset for segment in self.segments}
        for offset in [offset for offset in self._snapshots if offset not in needed]:
            self._snapshots.remove(offset)
            self._shelf.disk.remove(segment_path(self.directory, offset, ".snapshot"))

    # -- failing ------------------------------------------------------------------------------------------------------

    def _write_failed(self, error: OSError) -> KafkaError:
        if error.errno not in _NO_ROOM:
            self.offline = error
            return self._refusal()
        return KafkaError(
            ErrorCode.kafka_storage_error,
            f"no room on disk for {self.topic_partition} ({error.strerror}): nothing was written; free some space in "
            f"{self.directory.parent}",
        )

    def _refusal(self) -> KafkaError:
        return KafkaError(
            ErrorCode.kafka_storage_error,
            f"{self.topic_partition} is offline after a disk error: {self.offline}; repair the disk, then restart",
        )
