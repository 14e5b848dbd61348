"""Beginning a new segment at the end of a log: when the active one is full or old, or on request.

A part of a log, called for every append that is not usual, on the event loop: nothing here waits for the disk.
"""

from __future__ import annotations

from headrace.log.durability import Durability
from headrace.log.failing import write_failed
from headrace.log.partition_folder import PartitionFolder
from headrace.log.segment import Segment, Shelf
from headrace.log.tail import LogTail


class Rolling:
    __slots__ = ("_durability", "_folder", "_shelf", "_tail")

    def __init__(self, shelf: Shelf, tail: LogTail, folder: PartitionFolder, durability: Durability) -> None:
        self._shelf = shelf
        self._tail = tail
        self._folder = folder
        self._durability = durability

    def roll_if_due(self, now_ms: int) -> bool:
        """Start a new segment if the active one is old; for compacted topics also if its records have waited enough."""
        tail = self._tail
        with tail.lock:
            segment, config = tail.segments[-1], tail.config
            limit_ms = config.segment_ms
            if config.compacted:
                limit_ms = min(limit_ms, config.max_compaction_lag_ms)
            if tail.offline is not None or not segment.size or now_ms - segment.first_append_ms < limit_ms:
                return False
            self.begin_segment(now_ms)
            return True

    def roll(self, now_ms: int) -> None:
        """Start a new segment now, unless the active one is empty."""
        with self._tail.lock:
            if self._tail.segments[-1].size:
                self.begin_segment(now_ms)

    def room_for(self, size: int, next_offset: int, now_ms: int) -> Segment:
        """The active segment, or a new one if this write would make it too large or too old. KafkaError if there can be
        none. Called with the tail's lock held."""
        tail = self._tail
        segment: Segment = tail.segments[-1]
        tail.now_ms = now_ms
        try:
            if segment.size and tail.outgrown(segment, size, next_offset, now_ms):
                segment = self.begin_segment(now_ms)
            if not segment.active:
                segment.activate(tail.end_offset)
        except (OSError, MemoryError) as error:
            raise write_failed(tail, error) from error
        if not segment.size:
            segment.first_append_ms = now_ms
        return segment

    def begin_segment(self, now_ms: int) -> Segment:
        """Called with the tail's lock held."""
        tail = self._tail
        old = tail.segments[-1]
        fresh = Segment(self._shelf, self._folder.directory, tail.end_offset, 0, tail.config.index_interval_bytes)
        fresh.file.create()
        self._durability.store_at_end()
        fresh.first_append_ms = now_ms
        fresh.activate(tail.end_offset)
        old.seal()
        tail.newest = None
        tail.segments = (*tail.segments, fresh)
        self._folder.names_unsynced = True
        tail.grown()
        return fresh
