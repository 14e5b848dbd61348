"""One partition's log: append at the end, read anywhere.

The hot part of the room. Append and read run on the event loop for every request: no lookup on disk, one write per
append, and no state changes before that write has succeeded. Called by replicas and by handlers that ask for offsets.

A log is put together from parts, each handed what it needs: the tail (tail.py), the folder (partition_folder.py), the
derived states (states.py), appending in general (appending.py), syncing and checkpoints (durability.py), new segments
(rolling.py), and what makes it shorter: trimming.py from the front, truncation.py from the back, swapping.py for
compaction. Two locks: the tail's guards the segments and the end, and is held for moments, because the event loop takes
it for every append; `sync_lock` orders those who wait for the disk. Whoever takes both takes `sync_lock` first.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from headrace.log import identity, recovery, timestamps
from headrace.log.aborted_txns import AbortedTxns
from headrace.log.appended import Appended
from headrace.log.appending import Appending
from headrace.log.dedup import Dedup
from headrace.log.derived import LogOnDisk
from headrace.log.doomed import DoomedFiles
from headrace.log.durability import Durability, Syncing
from headrace.log.failing import refusal, write_failed
from headrace.log.indexes import SegmentIndex
from headrace.log.note_bodies import bodies, missing, table_at
from headrace.log.opening import Opened
from headrace.log.pending import Waiting
from headrace.log.producer_state import ProducerFacts
from headrace.log.reading import EMPTY, ReadBounds, Slice, segment_at, slice_of
from headrace.log.rolling import Rolling
from headrace.log.schedule import Due, Schedule
from headrace.log.sealed import Gap
from headrace.log.segment import Segment, Shelf
from headrace.log.swapping import Swap, Swapping
from headrace.log.tag_index import TagIndexes
from headrace.log.tail import LogTail, TailView
from headrace.log.trimming import Trimming
from headrace.log.truncation import Truncation
from headrace.model.image import INTERNAL_TOPICS
from headrace.model.topic_config import TopicConfig
from headrace.wire.batches import Buffer
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.notes import Note, read_note


class PartitionLog(TailView):
    # Python keeps the values of up to 30 attributes beside an object, and makes a table for each object that has more:
    # another 1.3 KB per log, and slower to find one's way in.
    __slots__ = (
        "_appending", "_doomed", "_durability", "_folder", "_next_trim_ms", "_rolling", "_shelf", "_states", "_thinned",
        "aborted_txns", "closed_cleanly", "internal", "scanned_bytes",
    )  # fmt: skip

    def __init__(
        self, shelf: Shelf, loaded: recovery.Loaded, config: TopicConfig, unsynced: set[PartitionLog], now_ms: int
    ) -> None:
        """`unsynced` is where the log stands for as long as it has grown since its last sync."""
        states = self._states = loaded.states
        folder = self._folder = loaded.folder
        producers = states.snapshots.states
        tail = self.tail = LogTail(
            tuple(loaded.segments), loaded.start_offset, loaded.end_offset, config, states.epochs, producers,
            shelf.headroom, now_ms, unsynced, self,
        )  # fmt: skip
        tail.offline = loaded.damage
        tail.changed = loaded.scanned_bytes > 0 or states.sealed.unwritten
        tail.hears_all = states.hears_all
        self._shelf = shelf
        self._doomed = DoomedFiles(shelf, folder, states)
        synced = loaded.end_offset if loaded.clean else folder.checkpoint.recovery_point
        durability = self._durability = Durability(tail, folder, states, synced, unsynced, self)
        self._rolling = Rolling(shelf, tail, folder, durability)
        self._appending = Appending(tail, states, self._rolling, shelf.headroom, folder.directory.name)
        self._next_trim_ms = 0  # before that nothing can have become too old
        self._thinned = states.thinned
        self.aborted_txns: AbortedTxns = states.aborted_txns
        self.closed_cleanly = False
        self.scanned_bytes = loaded.scanned_bytes
        place = identity.parse_folder_name(folder.directory.name)
        self.internal = place is not None and place[0] in INTERNAL_TOPICS

    # -- what it is ---------------------------------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        return self._folder.directory

    @property
    def topic_id(self) -> uuid.UUID:
        return self._folder.topic_id

    @property
    def topic_partition(self) -> str:
        return self._folder.directory.name

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.tail.segments)

    @property
    def synced_offset(self) -> int:
        return self._durability.synced_offset

    @property
    def cleaned_to(self) -> int:
        """Compaction has been over everything before this offset."""
        return max(self._folder.checkpoint.cleaned_to, self.tail.start_offset)

    @property
    def abandoned(self) -> bool:
        return self._folder.abandoned

    @property
    def thinned(self) -> bool:
        return self._thinned.known

    @property
    def schedule(self) -> Schedule:
        """What waits for its time."""
        return self._states.scheduled.schedule

    @property
    def unwanted_before(self) -> int:
        """Retention would drop what lies before this offset, if no record waited for its time there; else 0."""
        return self._states.scheduled.unwanted_before

    @property
    def missing(self) -> tuple[Gap, ...]:
        """Offsets that it had when it was closed, and did not have when it was opened."""
        return self._states.sealed.gaps

    @property
    def dedup(self) -> Dedup | None:
        """On a topic that asks for it."""
        return self._states.seen_ids.dedup

    @property
    def tag_indexes(self) -> TagIndexes:
        return self._states.tag_indexes

    @property
    def duplicates_dropped(self) -> int:
        return self._states.seen_ids.duplicates_dropped

    @property
    def ids_forgotten(self) -> int:
        return self._states.seen_ids.ids_forgotten

    def reconfigure(self, config: TopicConfig) -> None:
        tail = self.tail
        tail.config = config
        self._next_trim_ms = 0
        with tail.lock:
            log = LogOnDisk(
                self._folder, tail.segments, tail.start_offset, tail.end_offset, tail.end_offset, False, config,
                tail.now_ms,
            )  # fmt: skip
            for state in self._states.walk:
                state.reconfigured(log)
            tail.hears_all = self._states.hears_all

    # -- append -------------------------------------------------------------------------------------------------------

    def append(
        self,
        records: memoryview,
        leader_epoch: int,
        *,
        now_ms: int,
        internal: bool = False,
        transactional: bool = False,
        prepared: Opened | None = None,
        due_ms: int | None = None,
    ) -> Appended:
        """Take what a producer sent: check, stamp in place, one write.

        `records` is writable and holds one or more whole batches. `internal` is for the broker's own batches, which
        need no checks meant for clients. `transactional` says that the coordinator knows of this partition, so that a
        marker will come. Delays count from `due_ms`, by default from now. Raises KafkaError, and then nothing has
        changed; or Unprepared if the batches are to be opened off the event loop first, and then called again with what
        that has `prepared`.
        """
        tail = self.tail
        if not internal and not transactional:
            try:
                appended = tail.append_usual(records, leader_epoch, now_ms)
            except (OSError, MemoryError) as error:
                raise write_failed(tail, error) from error
            if appended is not None:
                return appended
        due_ms = now_ms if due_ms is None else due_ms
        return self._appending.append(records, leader_epoch, now_ms, internal, transactional, prepared, due_ms)

    def append_notes(self, records: memoryview, leader_epoch: int, *, now_ms: int) -> Appended:
        """Write notes, each with its mates behind it (wire/notes.py), with one write."""
        return self._appending.append_notes(records, leader_epoch, now_ms)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        leader_epoch: int,
        *,
        strict: bool,
        now_ms: int,
    ) -> Appended:
        """Write the end of a transaction. One that is here already is not written again, and counts as `duplicate`."""
        return self._appending.append_marker(
            producer_id, producer_epoch, coordinator_epoch, commit, leader_epoch, strict=strict, now_ms=now_ms
        )

    def scanned(self, records: memoryview) -> Opened | None:
        """What this topic wants to know of another log's batches before they are written; None if that is nothing.
        Raises Unprepared if it takes long: then the step tells it."""
        return self._appending.scanned(records)

    def append_as_follower(self, records: memoryview, now_ms: int | None = None, scanned: Opened | None = None) -> int:
        """Take batches as another log has them, with their offsets and epochs; of those that were `scanned` as many as
        that has. A batch that is cut short is left. How many bytes there are for consumers in them."""
        return self._appending.append_as_follower(records, now_ms, scanned, takes_room=not self.internal)

    # -- transactions -------------------------------------------------------------------------------------------------

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        return producer_id in self.producers.open and self.producers.producers[producer_id].epoch == epoch

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of a transaction that is open, or whose marker is not committed; None if there is none."""
        tail = self.tail
        producers = tail.producers
        if high_watermark == tail.committed_offset and not producers.open and not producers.ended:
            return None  # as nearly always, and asked twice for every fetch
        self.settle(high_watermark)
        return producers.first_unstable()

    def settle(self, high_watermark: int) -> None:
        """Everything before `high_watermark` is committed."""
        self.tail.committed_offset = high_watermark
        self.tail.producers.settle(high_watermark)

    def decided_below(self) -> int:
        """Everything before this offset is committed as far as this log has been told, every transaction that has a
        record there has ended, and the marker is committed too; and no note there is needed any more."""
        with self.tail.lock:
            needed = self._states.scheduled.needed_from(self.committed_offset)
            ends = [self.end_offset, self.committed_offset, self.producers.first_unstable(), needed]
            return min(end for end in ends if end is not None)

    def aborted(self, first_offset: int, upto_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that a reader of these offsets must skip."""
        return self.aborted_txns.between(first_offset, upto_offset)

    def producers_described(self) -> list[ProducerFacts]:
        return self.producers.described()

    # -- read ---------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, below: int, *, at_least_one: bool, for_consumer: bool = False) -> Slice:
        """Whole batches from `offset` on, before `below`; as they are stored, or as a consumer is given them. Never
        waits for the disk; loading the slice may."""
        tail = self.tail
        if tail.offline is not None:
            raise refusal(tail)
        end_offset = tail.end_offset
        if not tail.start_offset <= offset <= end_offset:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"{self.topic_partition} has offsets {tail.start_offset} to {end_offset}, not {offset}",
            )
        if offset >= below:
            return EMPTY
        thinned = for_consumer and self._thinned.known
        if offset == tail.newest_offset and below == end_offset and not thinned:
            tail.followed = True
            newest = tail.newest
            if newest is not None and len(newest) <= max_bytes:
                return Slice(len(newest), tail.segments[-1], tail.newest_position, kept=newest)
        return slice_of(tail.segments, ReadBounds(offset, max_bytes, below, below < end_offset, at_least_one, thinned))

    def note_at(self, offset: int, *, wait: bool) -> Note | None:
        """The note that begins at this offset; None if there is none. Raises NotCached only without `wait`."""
        segments = self.tail.segments
        segment = segments[segment_at(segments, offset)]
        position = segment.locate(offset, wait=wait)
        for at, header in segment.headers(position, segment.size, wait=wait):
            if header.base_offset != offset or not header.is_note:
                return None
            return read_note(segment.peek(at, header.size, wait=wait))
        return None

    def bodies(self, dues: Sequence[Due], *, from_0: bool = False) -> list[Buffer]:
        """The bytes of these records that wait, as in a batch; `from_0`: with times that count from 0. Blocks."""
        segments = self.tail.segments
        found = {offset: table_at(segments, offset, wait=True) for offset in missing({}, dues)}
        tables = {offset: table for offset, table in found.items() if table is not None}
        return bodies(tables, dues, wait=True, from_0=from_0)

    def pending_rows(self, from_id: int, limit: int) -> list[Waiting]:
        """The first records from this id on that wait for their time and are no part of an open transaction, in the
        order of ids. Called on the event loop, where they change; what they are is in their notes."""
        with self.tail.lock:
            return self.schedule.pending.page(from_id, limit)

    def find_time(self, timestamp_ms: int, below: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record as late as this; blocks."""
        return timestamps.find_time(self.segments, timestamp_ms, self.start_offset, below)

    def find_max_timestamp(self, below: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the latest record; blocks."""
        return timestamps.find_max(self.segments, self.start_offset, below)

    # -- syncing and closing ------------------------------------------------------------------------------------------

    def sync(self, *, checkpoint: bool = False, clean: bool = False) -> None:
        """Everything appended so far is on stable storage when this returns; blocks. See durability.py."""
        self._durability.sync(checkpoint=checkpoint, clean=clean)

    def syncing(self, *, checkpoint: bool = False) -> AbstractContextManager[Syncing]:
        """A sync in steps; nobody else syncs this log within the block."""
        return self._durability.syncing(checkpoint=checkpoint)

    def sync_failed(self, due: Syncing, segment: Segment, error: OSError | MemoryError) -> None:
        self._durability.sync_failed(due, segment, error)

    def end_sync(self, due: Syncing) -> None:
        self._durability.end_sync(due)

    def close(self, *, clean: bool = True) -> None:
        """Blocks. After a clean close the next open needs no scan."""
        with self._durability.sync_lock:
            if clean and self.tail.offline is None:
                if self.tail.changed:
                    self.sync(checkpoint=True, clean=True)
                self.closed_cleanly = True
            self.abandon()

    def abandon(self) -> None:
        """Refuse everything from now on and give the files back."""
        tail = self.tail
        with tail.lock:
            self._folder.abandoned = True
            for segment in tail.segments:
                segment.file.close()
            if tail.offline is None:
                tail.offline = OSError(errno.EBADF, "the log is closed", str(self.directory))

    # -- changing its shape -------------------------------------------------------------------------------------------

    def roll(self, now_ms: int) -> None:
        """Start a new segment now, unless the active one is empty."""
        self._rolling.roll(now_ms)

    def roll_if_due(self, now_ms: int) -> bool:
        return self._rolling.roll_if_due(now_ms)

    def trimming_due(self, now_ms: int) -> bool:
        """Whether `apply_retention` may find something: cheap enough for ten thousand logs every few seconds."""
        return now_ms >= self._next_trim_ms or self.tail.config.retention_bytes >= 0

    def apply_retention(self, now_ms: int) -> int:
        """Drop segments that are too old, too many or before the start; the number of segments dropped. Blocks."""
        trimming = self._trimming()
        dropped = trimming.apply_retention(now_ms)
        if self.tail.offline is None:
            self._next_trim_ms = now_ms + trimming.pause_ms()
        return dropped

    def trim_soon(self) -> None:
        """What kept segments from being dropped has gone."""
        self._states.scheduled.unwanted_before = 0
        self._next_trim_ms = 0

    def advance_start(self, offset: int) -> None:
        """DeleteRecords: nothing before `offset` is read any more, durably; whole segments before it go. Blocks."""
        self._trimming().advance_start(offset)

    def _trimming(self) -> Trimming:
        return Trimming(self.tail, self._folder, self._states, self._durability, self._rolling, self._doomed)

    def truncate_to(self, offset: int) -> None:
        """Drop everything from `offset` on; blocks."""
        self._truncation().truncate_to(offset)

    def restart_at(self, offset: int) -> None:
        """Drop everything and go on at `offset`; blocks."""
        self._truncation().restart_at(offset)

    def finish_truncation(self) -> None:
        """Called once after opening: do what a crash interrupted. A log that cannot is offline."""
        self._truncation().finish()

    def _truncation(self) -> Truncation:
        return Truncation(self._shelf, self.tail, self._folder, self._states, self._durability, self._doomed)

    def replace_segments(self, wanted: Swap, index: SegmentIndex, dropped_markers: Collection[int] = ()) -> bool:
        """Put a compacted file in the place of sealed segments, from which these markers are gone; blocks."""
        swapping = Swapping(self._shelf, self.tail, self._folder, self._states, self._durability, self._doomed)
        return swapping.replace_segments(wanted, index, dropped_markers)
