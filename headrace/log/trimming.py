"""Making a log shorter: retention and DeleteRecords from the front, truncation from the back, and starting over.

The middle part of partition_log.py. A new start is made durable before the files behind it go, so no crash brings
old records back with a hole after them. Truncation and restart write down what they are about to do, and recovery
finishes what a crash interrupts. All of it blocks; only truncation holds up appends, and nobody appends meanwhile.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from headrace.log import aborted_txns, dedup, recovery, replay
from headrace.log import checkpoint as checkpoints
from headrace.log.durability import DurableLog
from headrace.log.indexes import SegmentIndex
from headrace.log.leader_epochs import LeaderEpochs
from headrace.log.producer_state import ProducerStates
from headrace.log.reading import segment_at
from headrace.log.retention import Limits, SegmentFacts, segments_to_drop
from headrace.log.segment import Segment, segment_path
from headrace.wire.errors import ErrorCode, KafkaError

_TRIM_MS = 60_000
_SIDE_FILES = (".index", ".timeindex", aborted_txns.SUFFIX)


class Swap(Struct, frozen=True):
    """What compaction wants to put in the place of what."""

    old: tuple[Segment, ...]
    cleaned: Path
    """A file that is synced."""
    cleaned_to: int
    """Everything before this offset has been compacted when the swap is done."""
    cuts: int
    """The log's count of truncations when the run began: what was dropped may have been dropped for their sake."""


class TrimmableLog(DurableLog):
    __slots__ = ()

    # -- from the front -----------------------------------------------------------------------------------------------

    def advance_start(self, offset: int) -> None:
        """DeleteRecords: nothing before `offset` is read any more, durably; whole segments before it go."""
        with self._sync_lock:
            with self._lock:
                if self.offline is not None:
                    raise self._refusal()
                if offset > self.end_offset:
                    raise KafkaError(
                        ErrorCode.offset_out_of_range,
                        f"{self.topic_partition} ends at {self.end_offset}, nothing to delete up to {offset}",
                    )
            if offset <= self.start_offset:
                return
            self._sync_up_to(offset)
            self._move_front(offset, sum(segment.base_offset <= offset for segment in self.segments[1:]))

    def _sync_up_to(self, offset: int) -> None:
        """A log never starts behind what is on stable storage: a crash would leave it with its end before its start."""
        if offset > self.synced_offset:
            try:
                self.sync()
            except OSError as error:
                raise self._write_failed(error) from error

    def trimming_due(self, now_ms: int) -> bool:
        """Whether `apply_retention` may find something: cheap enough for ten thousand logs every few seconds."""
        return now_ms >= self.next_trim_ms or self.config.retention_bytes >= 0

    def apply_retention(self, now_ms: int) -> int:
        """Drop segments that are too old, too many or before the start; the number of segments dropped."""
        with self._sync_lock:
            self.segments[0].newest_timestamp()  # may wait for the disk, so before appends have to wait for us
            with self._lock:
                self._now_ms = max(now_ms, self._now_ms)
                self.producers.expire(now_ms - self._shelf.producer_expiry_ms)
                if self.offline is not None:
                    return 0
                count = self._droppable(now_ms)
                if count == len(self.segments):
                    self._roll(now_ms)
            if count:
                first = self.segments[count].base_offset
                self._sync_up_to(first)
                self._move_front(max(self.start_offset, first), count)
            self.doomed.purge(now_ms)
            with self._lock:  # whoever still reads a file must know which of its records were aborted
                self.aborted_txns.cut_head(min([self.segments[0].base_offset, *self.doomed.base_offsets()]))
            config = self.config
            waits_ms = [_TRIM_MS, config.segment_ms // 2, config.file_delete_delay_ms // 2]
            if config.retention_ms >= 0:
                waits_ms.append(config.retention_ms // 2)
            self.next_trim_ms = now_ms + min(waits_ms)
            return count

    def _droppable(self, now_ms: int) -> int:
        config, segments = self.config, self.segments
        ends = [segment.base_offset for segment in segments[1:]] + [self.end_offset]
        facts = [
            SegmentFacts(segment.base_offset, segment.size, end, lambda segment=segment: _newest_ms(segment, now_ms))  # type: ignore[misc]
            for segment, end in zip(segments, ends, strict=True)
        ]
        return segments_to_drop(
            facts,
            Limits(
                start_offset=min(self.start_offset, segments[-1].base_offset),
                retention_ms=config.retention_ms if config.deleted else -1,
                retention_bytes=config.retention_bytes if config.deleted else -1,
            ),
            now_ms,
        )

    def _move_front(self, start: int, count: int) -> None:
        """The log starts at `start` from now on, and its first `count` segments go. If that cannot be written down,
        nothing has changed, and it can be tried again."""
        first = self.segments[count].base_offset
        changes: dict[str, Any] = {"start_offset": start}
        if self._checkpoint.recovery_point < first:
            changes |= {"recovery_point": first, "segment": first, "position": 0, "has_producers": True}
        self._settle(**changes)
        with self._lock:
            dropped, self.segments = self.segments[:count], self.segments[count:]
            self.start_offset = start
        self.epochs.cut_head(start)
        for segment in dropped:
            self._retire(segment)

    def _retire(self, segment: Segment, suffixes: Sequence[str] = _SIDE_FILES) -> None:
        """Take a segment's files away; whoever is reading it may finish."""
        self._shelf.indexes.forget(segment)
        self.doomed.add(segment.file, segment.base_offset, self._now_ms + self.config.file_delete_delay_ms)
        for suffix in suffixes:
            self._shelf.disk.remove(segment_path(self.directory, segment.base_offset, suffix))
        self._names_unsynced = True

    def _settle(self, **changes: Any) -> None:
        """Change the checkpoint durably, or not at all."""
        try:
            self._write_down(**changes)
        except OSError as error:
            raise self._write_failed(error) from error

    def _write_down(self, **changes: Any) -> None:
        """The checkpoint is no longer that of a clean stop; the next clean stop makes it so."""
        self._changed = True
        self._sync_names()
        following = replace(self._checkpoint, clean=False, **changes)
        self._checkpoint = checkpoints.settle(self._shelf.disk, self.directory, following)

    # -- from the back ------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Drop everything from `offset` on; a batch that spans it goes whole, and so do epochs that began there."""
        if offset < self.segments[0].base_offset:
            self.restart_at(offset)
            return
        with self._sync_lock, self._lock:
            if self.offline is not None:
                raise self._refusal()
            if offset >= self.end_offset:
                self.epochs.cut_tail(offset)  # the last one may have no records
                return
            place = segment_at(self.segments, offset)
            segment = self.segments[place]
            position, offset = _end_before(segment, offset)
            changes: dict[str, Any] = {"truncate_to": offset}
            if self._checkpoint.recovery_point > offset:
                changes |= {
                    "recovery_point": offset,
                    "segment": segment.base_offset,
                    "position": position,
                    "first_append_ms": segment.first_append_ms,
                    "has_producers": True,
                }
            changes["cleaned_to"] = min(self._checkpoint.cleaned_to, offset)
            changes["start_offset"] = min(self.start_offset, offset)
            self._settle(**changes)
            try:
                self._cut_tail(place, position, offset)
                self._write_down(truncate_to=None)  # or the next start would cut again, and what came after with it
            except OSError as error:
                self.offline = error
                raise self._refusal() from error

    def finish_truncation(self) -> None:
        """Called once after opening: do what a crash interrupted. A log that cannot is offline."""
        if self.offline is not None:
            return
        point = self._checkpoint
        try:
            if point.truncate_to is not None and point.truncate_to < self.end_offset:
                self.truncate_to(point.truncate_to)
            elif point.truncate_to is not None or point.restart_at is not None:
                self._settle(truncate_to=None, restart_at=None)
        except KafkaError as error:
            if self.offline is None:
                self.offline = OSError(errno.EIO, f"an unfinished truncation: {error.message}", str(self.directory))

    # -- in the middle ------------------------------------------------------------------------------------------------

    def replace_segments(self, wanted: Swap, index: SegmentIndex, dropped_markers: Collection[int] = ()) -> bool:
        """Put a compacted file in the place of sealed segments, from which these markers are gone; crash-safe.

        False if the log was truncated meanwhile or they are no longer all there; then nothing is done. From the rename
        to `.swap` on the new file counts: recovery finishes the rest (recovery.py).
        """
        with self._sync_lock:
            with self._lock:
                old = wanted.old
                if self.offline is not None or self.cuts != wanted.cuts or not set(old) <= set(self.segments[:-1]):
                    return False
                following = self.segments[self.segments.index(old[-1]) + 1].base_offset
            self.thinned = True
            changes: dict[str, Any] = {"cleaned_to": wanted.cleaned_to, "thinned": True}
            if self._checkpoint.segment < following:  # no position in a file that is about to change
                changes |= {"recovery_point": following, "segment": following, "position": 0}
                changes |= {"has_producers": True, "first_append_ms": -1}
            first = old[0].base_offset
            self._rewrite_aborted(first, following, dropped_markers)
            self._settle(**changes)
            disk, swap = self._shelf.disk, self.directory / recovery.swap_name(first, following)
            try:
                disk.rename(wanted.cleaned, swap)
                disk.sync_dir(self.directory)
                self._retire(old[0], (".index", ".timeindex"))
                for segment in old[1:]:
                    self._retire(segment)
                disk.sync_dir(self.directory)
                disk.rename(swap, segment_path(self.directory, first, ".log"))
                disk.sync_dir(self.directory)
            except OSError as error:
                self.offline = error
                raise
            fresh = Segment(self._shelf, self.directory, first, index.covered, self.config.index_interval_bytes)
            fresh.adopt_index(index)
            fresh.store_index(fresh.encode_index())
            with self._lock:
                at = self.segments.index(old[0])
                self.segments = (*self.segments[:at], fresh, *self.segments[at + len(old) :])
            return True

    @property
    def cleaned_to(self) -> int:
        """Compaction has been over everything before this offset."""
        return max(self._checkpoint.cleaned_to, self.start_offset)

    def _cut_tail(self, place: int, position: int, offset: int) -> None:
        self.cuts += 1
        for later in self.segments[place + 1 :]:
            later.file.close()
            for suffix in (".log", *_SIDE_FILES):
                self._shelf.disk.remove(segment_path(self.directory, later.base_offset, suffix))
        self._remove_snapshots([snapshot for snapshot in self._snapshots if snapshot > offset])
        self._shelf.disk.sync_dir(self.directory)
        self.aborted_txns.cut_tail(offset)
        base = self.segments[place].base_offset
        aborted_txns.cut_file(self._shelf.disk, self.directory, base, self.aborted_txns.markers_within(base, offset))
        self.segments = self.segments[: place + 1]
        self.segments[-1].cut(position, offset)
        self.end_offset = offset
        self.synced_offset = min(self.synced_offset, offset)
        self.start_offset = min(self.start_offset, offset)
        self.committed_offset = None if self.committed_offset is None else min(self.committed_offset, offset)
        self.epochs.cut_tail(offset)
        self.producers = replay.rebuilt_producers(self._shelf, self.segments, self._snapshots, offset, self._now_ms)
        if self._checkpoint.has_producers and self._checkpoint.recovery_point == offset:
            self._write_snapshot(offset, self.producers.encode())
        self.load_ids(self._now_ms)
        self._changed = True
        self._unsynced.add(self)

    def load_ids(self, now_ms: int) -> None:
        """Called once after opening, and after a cut: find the ids that a topic with deduplication has to know."""
        if self.config.dedup_window_ms and self.offline is None:
            offsets, first_open = (self.start_offset, self.end_offset), self.producers.first_unstable()
            self.dedup = dedup.loaded(self._shelf.disk, self.segments, offsets, first_open, self.config, now_ms)

    def restart_at(self, offset: int) -> None:
        """Drop everything and go on at `offset`, as a replica does whose records its leader no longer has."""
        with self._sync_lock, self._lock:
            if self.offline is not None:
                raise self._refusal()
            with self.segments[-1].file:
                pass  # so that there is a folder
            self._settle(
                restart_at=offset, start_offset=offset, recovery_point=offset, segment=offset, position=0,
                has_producers=False, cleaned_to=0, thinned=False,
            )  # fmt: skip
            self.cuts += 1
            try:
                self._start_over(offset)
                self._write_down(restart_at=None)  # or the next start would drop what came after
            except OSError as error:
                self.offline = error
                raise self._refusal() from error

    def _start_over(self, offset: int) -> None:
        for segment in self.segments:
            self._retire(segment)
        self._remove_snapshots(list(self._snapshots))
        fresh = Segment(self._shelf, self.directory, offset, 0, self.config.index_interval_bytes)
        fresh.file.create()
        fresh.first_append_ms = self._now_ms
        self._shelf.disk.sync_dir(self.directory)
        self.segments = (fresh,)
        self.start_offset = self.end_offset = self.synced_offset = offset
        if self.committed_offset is not None:
            self.committed_offset = offset
        self.epochs = LeaderEpochs()
        self.epochs.changed = True
        self.producers = ProducerStates()
        self.aborted_txns.clear()
        self.thinned = False
        if self.dedup is not None:
            self.dedup = dedup.begun(self._shelf.disk, self.directory, offset, self.config)

    def _remove_snapshots(self, offsets: Sequence[int]) -> None:
        for offset in offsets:
            self._snapshots.remove(offset)
            self._shelf.disk.remove(segment_path(self.directory, offset, ".snapshot"))


def _end_before(segment: Segment, offset: int) -> tuple[int, int]:
    """(position, offset) behind the last batch that lies before `offset`: a log ends where its last batch ends."""
    position, end = 0, segment.base_offset
    first = segment.index(wait=True).position_of(offset - segment.base_offset)
    for at in (first, 0):
        for found, header in segment.headers(at, segment.size, wait=True):
            if header.next_offset > offset:
                break
            position, end = found + header.size, header.next_offset
        if position:
            break
    return position, end


def _newest_ms(segment: Segment, now_ms: int) -> int:
    """The age of a segment is that of its newest record; records without a time count from their arrival."""
    newest = segment.newest_timestamp()
    if newest >= 0:
        return newest
    return segment.first_append_ms if segment.first_append_ms >= 0 else now_ms
