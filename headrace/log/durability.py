"""What of a log is safe: syncing, checkpoints, and storing its derived states with them.

A part of a log, handed its tail, its folder and its derived states. Called by whoever syncs (flushing.py,
group_commit.py) and by the parts that change the checkpoint. What holds: everything before `synced_offset` is on stable
storage, names included.

A sync covers, in this order: the segments, the folder and the identity if they are new, the derived states that must
not be behind (derived.py, `Store.durable`), the names in the folder. Then the synced offset moves, and the rest is
written without waiting: other states, indexes, the checkpoint.

`sync_lock` orders those who wait for the disk. Whoever takes both locks takes it before the tail's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from headrace.log.derived import Moment, Occasion, Store
from headrace.log.failing import passes, write_failed
from headrace.log.partition_folder import PartitionFolder
from headrace.log.reading import segment_at
from headrace.log.segment import Segment
from headrace.log.states import LogStates
from headrace.log.tail import LogTail

_CHECKPOINT_BYTES = 16 << 20  # that much may be scanned again after a crash although it was synced


class Syncing(Struct):
    """One sync of a log: whose files it covers, and what is to be stored about it once they are synced."""

    target: int  # the end of what will be safe
    segments: tuple[Segment, ...]
    active: Segment
    position: int  # its size
    behind: list[Segment]  # whose stored indexes are old
    stores: list[Store]
    fields: dict[str, bool]  # of the checkpoint, from derived states
    clean: bool
    checkpoint: bool
    asked: bool  # for the checkpoint; else it is due because of what has been written
    scan_bytes: int  # that the checkpoint saves a start after a crash
    index: tuple[bytes, bytes] | None


class Durability:
    __slots__ = ("_folder", "_log", "_states", "_tail", "_unsynced", "sync_lock", "synced_offset")

    def __init__(
        self,
        tail: LogTail,
        folder: PartitionFolder,
        states: LogStates,
        synced_offset: int,
        unsynced: set[Any],
        log: Any,
    ) -> None:
        """`log` is what stands in `unsynced` for as long as the log has grown since its last sync."""
        self._tail = tail
        self._folder = folder
        self._states = states
        self._unsynced = unsynced
        self._log = log
        self.synced_offset = synced_offset
        self.sync_lock = threading.RLock()

    # -- syncing ------------------------------------------------------------------------------------------------------

    def sync(self, *, checkpoint: bool = False, clean: bool = False) -> None:
        """Everything appended so far is on stable storage when this returns; blocks.

        An error takes the log offline and is never retried: the kernel may have dropped the pages that it could not
        write, and a second attempt would report success. Only what fails before the files are synced, for a full disk
        or a lack of descriptors or memory, leaves the log as it is, for another sync. With `checkpoint` the recovery
        point moves on as well.
        """
        with self.syncing(checkpoint=checkpoint, clean=clean) as due:
            for segment in due.segments:
                try:
                    with segment.file as file:
                        file.sync()
                except (OSError, MemoryError) as error:
                    self.sync_failed(due, segment, error)
            self.end_sync(due)

    # In steps, for who syncs the files of many logs together (flushing.py): begin, sync the files, end.

    @contextmanager
    def syncing(self, *, checkpoint: bool = False, clean: bool = False) -> Iterator[Syncing]:
        """Nobody else syncs this log within the block."""
        with self.sync_lock:
            yield self._begin_sync(checkpoint=checkpoint, clean=clean)

    def _begin_sync(self, *, checkpoint: bool, clean: bool) -> Syncing:
        tail = self._tail
        with tail.lock:
            if tail.offline is not None:
                raise tail.offline
            asked, scan_bytes = checkpoint, tail.bytes_since_checkpoint
            checkpoint = asked or scan_bytes >= _CHECKPOINT_BYTES
            active = tail.segments[-1]
            first = segment_at(tail.segments, max(self.synced_offset, tail.start_offset))
            behind = [segment for segment in tail.segments if segment.index_stale and segment is not active]
            moment = self.moment(Occasion.CHECKPOINT if checkpoint else Occasion.SYNC)
            moment.stops = clean
            due = Syncing(
                target=tail.end_offset,
                segments=tail.segments[first:],
                active=active,
                position=active.size,
                behind=behind,
                stores=self._states.stores(moment),
                fields=moment.fields,
                clean=clean,
                checkpoint=checkpoint,
                asked=asked,
                scan_bytes=scan_bytes,
                index=active.encode_index() if checkpoint and active.index_stale else None,
            )
            if checkpoint:
                tail.bytes_since_checkpoint = 0
            self._unsynced.discard(self._log)
            return due

    def sync_failed(self, due: Syncing, segment: Segment, error: OSError | MemoryError) -> None:
        """The file of this segment could not be synced; raises `error` if the segment is still part of the log. A file
        is made when it is first used: if the disk is too full for that, nothing was to be synced yet."""
        if isinstance(error, FileNotFoundError) and segment not in self._tail.segments:
            return  # retention was faster
        if passes(error):
            self._put_off(due)
        else:
            self._tail.offline = error  # type: ignore[assignment]  # a MemoryError passes
        raise error

    def _put_off(self, due: Syncing) -> None:
        """Leave to the next sync what this one cannot do."""
        with self._tail.lock:
            self._unsynced.add(self._log)
            if due.checkpoint:
                self._tail.bytes_since_checkpoint += due.scan_bytes
            if due.index is not None:
                due.active.index_not_stored()

    def end_sync(self, due: Syncing) -> None:
        """The files are synced: make the rest durable too, and remember how far."""
        self._check_not_abandoned()
        try:
            self._make_durable(due.stores)
        except (OSError, MemoryError) as error:
            if not passes(error):
                self._tail.offline = error  # type: ignore[assignment]  # a MemoryError passes
            self._put_off(due)
            raise
        self._check_not_abandoned()
        self.synced_offset = due.target
        try:
            self._write_rest(due)
        except (OSError, MemoryError) as error:
            if passes(error):
                self._put_off(due)
                if not due.asked:
                    return  # who waits for the sync has it; the checkpoint follows with the next one
            raise

    def _check_not_abandoned(self) -> None:
        """Before writing names after a wait for the disk: the topic may be deleted, and the folder another topic's."""
        if self._folder.abandoned and self._tail.offline is not None:
            raise self._tail.offline

    def _make_durable(self, stores: Sequence[Store]) -> None:
        must = [store for store in stores if store.durable]
        if must or self._folder.names_unsynced:
            self._folder.make_permanent()
        for store in must:
            store.write()
        self._folder.sync_names()

    def _write_rest(self, due: Syncing) -> None:
        for store in due.stores:
            if not store.durable:
                store.write()
        for segment in due.behind:
            segment.store_index(segment.encode_index())
        if not due.checkpoint:
            return
        if due.index is not None:
            due.active.store_index(due.index)
        self._folder.hint(
            replace(
                self._folder.checkpoint,
                recovery_point=due.target,
                segment=due.active.base_offset,
                position=due.position,
                first_append_ms=due.active.first_append_ms,
                clean=due.clean,
                **due.fields,
            )
        )

    # -- states and the checkpoint ------------------------------------------------------------------------------------

    def moment(self, occasion: Occasion) -> Moment:
        """Now; called with the tail's lock held."""
        tail = self._tail
        return Moment(occasion, self._folder, tail.end_offset, tail.segments, tail.now_ms, {})

    def store_at_end(self) -> None:
        """Store the states where a segment begins, or where the log was cut: without waiting for the disk."""
        for store in self._states.stores(self.moment(Occasion.ROLL)):
            store.write()

    def sync_up_to(self, offset: int) -> None:
        """A log never starts behind what is on stable storage: a crash would leave it with its end before its start."""
        if offset > self.synced_offset:
            try:
                self.sync()
            except (OSError, MemoryError) as error:
                raise write_failed(self._tail, error) from error

    def settle(self, **changes: Any) -> None:
        """Change the checkpoint durably, or not at all: KafkaError if that fails."""
        try:
            self.write_down(**changes)
        except (OSError, MemoryError) as error:
            raise write_failed(self._tail, error) from error

    def write_down(self, **changes: Any) -> None:
        """Change the checkpoint durably, and before that the states that it must not run ahead of."""
        self._tail.changed = True
        with self._tail.lock:
            stores = self._states.stores(self.moment(Occasion.SETTLE))
        self._make_durable(stores)
        self._folder.settle(**changes)
