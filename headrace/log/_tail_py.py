"""The end of a log in Python: what tail.py describes, where nothing could be compiled."""

from __future__ import annotations

import threading
from array import array
from typing import TYPE_CHECKING, Any

from headrace.log.appended import Appended
from headrace.log.files import PooledFile
from headrace.log.indexes import SegmentIndex
from headrace.model.topic_config import TopicConfig
from headrace.wire.errors import KafkaError
from headrace.world.disk import File

_RECENT_BATCHES = 256
_MAX_RELATIVE_OFFSET = 0x7FFFFFFF
_KEPT_BYTES = 4096  # of the last write, for a reader that keeps up: asking the kernel for more of them costs as much


class SegmentTail:
    __slots__ = (
        "_index", "_indexed_to", "_recent_ends", "_recent_floor", "_recent_positions", "base_offset", "file",
        "first_append_ms", "index_stale", "interval_bytes", "max_timestamp", "size",
    )  # fmt: skip

    base_offset: int
    file: PooledFile
    size: int
    first_append_ms: int
    max_timestamp: int | None  # None: the index knows
    interval_bytes: int
    index_stale: bool  # the index in memory knows more than the one on disk
    _index: SegmentIndex | None
    _indexed_to: int  # position of the newest index entry
    _recent_ends: array[int]  # of the newest batches: the offset after each, and where it starts
    _recent_positions: array[int]
    _recent_floor: int  # offsets from here on are found among the recent batches

    def note(self, base_offset: int, next_offset: int, size: int, max_timestamp: int) -> None:
        """A batch has been written at the end of the file of an active segment."""
        position = self.size
        known_max: int = self.max_timestamp  # type: ignore[assignment]  # `activate` has set it
        if position - self._indexed_to >= self.interval_bytes:
            self._index.add(base_offset - self.base_offset, position, known_max)  # type: ignore[union-attr]
            self._indexed_to = position
        if max_timestamp > known_max:
            self.max_timestamp = max_timestamp
        ends = self._recent_ends
        if len(ends) >= 2 * _RECENT_BATCHES:
            self._recent_floor = ends[_RECENT_BATCHES - 1]
            del ends[:_RECENT_BATCHES], self._recent_positions[:_RECENT_BATCHES]
        ends.append(next_offset)
        self._recent_positions.append(position)
        self.size = position + size
        self.index_stale = True


class LogTail:
    __slots__ = (
        "_changed", "_followed", "_lock", "_newest", "_newest_offset", "_newest_position", "_now_ms", "_shelf",
        "_unsynced", "bytes_since_checkpoint", "config", "dedup", "end_offset", "epochs", "offline", "producers",
        "segments", "start_offset",
    )  # fmt: skip

    config: TopicConfig
    segments: tuple[Any, ...]
    start_offset: int
    end_offset: int
    offline: OSError | None
    bytes_since_checkpoint: int
    _lock: threading.RLock
    _unsynced: set[Any]
    _now_ms: int  # of the last append
    _changed: bool  # since a checkpoint that says so
    _followed: bool  # somebody has read exactly what was written last
    _newest: bytes | None  # that, in the active segment, if somebody follows and it is small
    _newest_offset: int  # where it begins, in the log and in the segment's file
    _newest_position: int

    if TYPE_CHECKING:  # what is built on this has these

        def _cut_back(self, segment: Any, file: File) -> None: ...

        def _write_failed(self, error: OSError) -> KafkaError: ...

    def append_usual(self, records: memoryview, leader_epoch: int, now_ms: int) -> Appended | None:
        """What PartitionLog.append does for a client, if `records` is one batch about which nothing is special; else
        None, and nothing has happened."""
        return None

    def _outgrown(self, segment: SegmentTail, size: int, next_offset: int, now_ms: int) -> bool:
        """Whether this write would make a segment, which is not empty, too large or too old."""
        config, index = self.config, segment._index
        return (
            segment.size + size > config.segment_bytes
            or now_ms - segment.first_append_ms >= config.segment_ms
            or next_offset - segment.base_offset > _MAX_RELATIVE_OFFSET
            or (index is not None and 8 * len(index.offsets) >= config.segment_index_bytes)
        )

    def _write(self, segment: SegmentTail, records: memoryview) -> None:
        """Put what is stamped into the active segment's file. KafkaError, and the file is as before, if that fails."""
        try:
            with segment.file as file:
                try:
                    file.append((records,))
                except OSError:
                    self._cut_back(segment, file)
                    raise
        except OSError as error:
            raise self._write_failed(error) from error
        self._newest_offset, self._newest_position = self.end_offset, segment.size
        self._newest = bytes(records) if self._followed and len(records) <= _KEPT_BYTES else None
        self._followed = False
        self.bytes_since_checkpoint += len(records)
        self._changed = True
        self._unsynced.add(self)
