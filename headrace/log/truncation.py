"""Making a log shorter from the back, and starting it over: what a replica does whose log differs from its leader's.

A part of a log, made anew for each time that it is needed. What it is about to do is written into the checkpoint first,
and recovery finishes what a crash interrupts: so every step may be done again. Derived states are cut after the
segments; if a crash comes between, loading them finds what is stored of what is gone (derived.py). If the disk is full
in the middle, or descriptors or memory are lacking, the log is offline until it is truncated or started over again,
which first finishes what was begun. All of it blocks and holds up appends, of which there are none meanwhile.
"""

from __future__ import annotations

import errno
from typing import Any

from headrace.log.derived import LogOnDisk
from headrace.log.doomed import DoomedFiles
from headrace.log.durability import Durability
from headrace.log.failing import interrupted, passes, refusal
from headrace.log.partition_folder import PartitionFolder
from headrace.log.reading import segment_at
from headrace.log.segment import INDEX_SUFFIXES, Segment, Shelf
from headrace.log.states import LogStates
from headrace.log.tail import LogTail
from headrace.wire.errors import KafkaError
from headrace.world.disk import is_lack


class Truncation:
    __slots__ = ("_doomed", "_durability", "_folder", "_shelf", "_states", "_tail")

    def __init__(
        self,
        shelf: Shelf,
        tail: LogTail,
        folder: PartitionFolder,
        states: LogStates,
        durability: Durability,
        doomed: DoomedFiles,
    ) -> None:
        self._shelf = shelf
        self._tail = tail
        self._folder = folder
        self._states = states
        self._durability = durability
        self._doomed = doomed

    def truncate_to(self, offset: int) -> None:
        """Drop everything from `offset` on; a batch that spans it goes whole, and so do epochs that began there."""
        tail = self._tail
        if offset < tail.segments[0].base_offset:
            self.restart_at(offset)
            return
        with self._durability.sync_lock, tail.lock:
            self._finish_begun()
            if offset >= tail.end_offset:
                tail.epochs.cut_tail(offset)  # the last one may have no records
                return
            self._truncate(offset)

    def _truncate(self, offset: int) -> None:
        tail = self._tail
        place = segment_at(tail.segments, offset)
        segment = tail.segments[place]
        position, offset = _end_before(segment, offset)
        self._durability.settle(**self._changes(segment, position, offset))
        try:
            self._cut(place, position, offset)
            self._durability.write_down(truncate_to=None)  # or the next start would cut what came after as well
        except (OSError, MemoryError) as error:
            raise interrupted(tail, error) from error
        tail.offline = None

    def _finish_begun(self) -> None:
        """Do what a full disk or a lack has interrupted; KafkaError if the log is offline all the same."""
        tail, point = self._tail, self._folder.checkpoint
        if tail.offline is None:
            return
        if passes(tail.offline) and point.restart_at is not None:
            self._restart(point.restart_at)
        elif passes(tail.offline) and point.truncate_to is not None:
            self._truncate(point.truncate_to)
        else:
            raise refusal(tail)

    def _changes(self, segment: Segment, position: int, offset: int) -> dict[str, Any]:
        point = self._folder.checkpoint
        changes: dict[str, Any] = {
            "truncate_to": offset,
            "cleaned_to": min(point.cleaned_to, offset),
            "start_offset": min(self._tail.start_offset, offset),
        }
        if point.recovery_point > offset:
            changes |= {
                "recovery_point": offset,
                "segment": segment.base_offset,
                "position": position,
                "first_append_ms": segment.first_append_ms,
                "has_producers": True,
            }
        return changes

    def _cut(self, place: int, position: int, offset: int) -> None:
        tail, folder = self._tail, self._folder
        tail.cuts += 1
        for later in tail.segments[place + 1 :]:
            later.file.close()
            folder.remove(later.base_offset, (".log", *INDEX_SUFFIXES, *self._states.suffixes()))
        folder.sync_names()
        tail.segments = tail.segments[: place + 1]
        tail.segments[-1].cut(position, offset)
        tail.end_offset = offset
        tail.start_offset = min(tail.start_offset, offset)
        tail.committed_offset = None if tail.committed_offset is None else min(tail.committed_offset, offset)
        self._durability.synced_offset = min(self._durability.synced_offset, offset)
        log = self._on_disk()
        for state in self._states.walk:
            state.cut_back(log)
        tail.hears_all = self._states.hears_all
        self._durability.store_at_end()
        folder.names_unsynced = True
        tail.changed = True
        tail.grown()

    def finish(self) -> None:
        """Called once after opening: do what a crash interrupted. A log that cannot is offline."""
        tail, point = self._tail, self._folder.checkpoint
        if tail.offline is not None:
            return
        try:
            if point.truncate_to is not None and point.truncate_to < tail.end_offset:
                self.truncate_to(point.truncate_to)
            elif point.truncate_to is not None or point.restart_at is not None:
                self._durability.settle(truncate_to=None, restart_at=None)
        except KafkaError as error:
            lack = error.__cause__ if tail.offline is None else tail.offline
            if lack is not None and is_lack(lack):
                raise lack from None  # the log can be opened later
            if tail.offline is None:
                number = errno.ENOSPC if passes(error.__cause__) else errno.EIO
                reason = f"an unfinished truncation: {error.message}"
                tail.offline = OSError(number, reason, str(self._folder.directory))

    def restart_at(self, offset: int) -> None:
        """Drop everything and go on at `offset`, as a replica does whose records its leader no longer has."""
        tail = self._tail
        with self._durability.sync_lock, tail.lock:
            self._finish_begun()
            with tail.segments[-1].file:
                pass  # so that there is a folder
            self._restart(offset)

    def _restart(self, offset: int) -> None:
        tail = self._tail
        self._durability.settle(
            restart_at=offset, start_offset=offset, recovery_point=offset, segment=offset, position=0,
            has_producers=False, cleaned_to=0, thinned=False, noted=False,
        )  # fmt: skip
        tail.cuts += 1
        try:
            self._start_over(offset)
            self._durability.write_down(restart_at=None)  # or the next start would drop what came after
        except (OSError, MemoryError) as error:
            raise interrupted(tail, error) from error
        tail.offline = None

    def _start_over(self, offset: int) -> None:
        tail, folder = self._tail, self._folder
        for segment in tail.segments:
            self._doomed.add(segment, tail.now_ms + tail.config.file_delete_delay_ms)
        fresh = Segment(self._shelf, folder.directory, offset, 0, tail.config.index_interval_bytes)
        fresh.file.create()
        tail.segments = (fresh,)
        tail.start_offset = tail.end_offset = self._durability.synced_offset = offset
        if tail.committed_offset is not None:
            tail.committed_offset = offset
        log = self._on_disk()
        for state in self._states.walk:
            state.restarted(log)
        tail.hears_all = self._states.hears_all
        fresh.first_append_ms = tail.now_ms
        folder.names_unsynced = True
        folder.sync_names()

    def _on_disk(self) -> LogOnDisk:
        tail = self._tail
        return LogOnDisk(
            folder=self._folder,
            segments=tail.segments,
            start_offset=tail.start_offset,
            end_offset=tail.end_offset,
            safe_to=tail.end_offset,
            clean=False,
            config=tail.config,
            now_ms=tail.now_ms,
        )


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
