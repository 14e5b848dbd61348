"""The end of a log in Python: what tail.py describes, where nothing could be compiled."""

from __future__ import annotations

import threading
from array import array
from typing import TYPE_CHECKING, Any

from headrace.log import failing
from headrace.log.appended import Appended
from headrace.log.files import PooledFile
from headrace.log.indexes import SegmentIndex
from headrace.model.topic_config import TopicConfig

if TYPE_CHECKING:
    from headrace.log.headroom import Headroom
    from headrace.log.leader_epochs import LeaderEpochs
    from headrace.log.producer_state import ProducerStates
    from headrace.log.segment import Segment

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
        "_headroom", "_unsynced", "bytes_since_checkpoint", "changed", "committed_offset", "config", "cuts",
        "end_offset", "epochs", "followed", "hears_all", "lock", "log", "newest", "newest_offset", "newest_position",
        "now_ms", "offline", "producers", "segments", "start_offset",
    )  # fmt: skip

    def __init__(
        self,
        segments: tuple[Segment, ...],
        start_offset: int,
        end_offset: int,
        config: TopicConfig,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        headroom: Headroom | None,
        now_ms: int,
        unsynced: set[Any],
        log: object,
    ) -> None:
        """`log` is put into `unsynced` by every write."""
        self.segments = segments
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.config = config
        self.offline: OSError | None = None
        self.cuts = 0  # truncations since the log was opened
        self.committed_offset: int | None = None  # the high watermark, as last told by `settle`
        self.bytes_since_checkpoint = 0
        self.epochs = epochs
        self.producers = producers
        self.hears_all = False  # LogStates.hears_all: no append is usual then
        self.now_ms = now_ms  # of the last append
        self.changed = False  # since a checkpoint that says so
        self.followed = False  # a reader has read exactly what was written last
        self.newest: bytes | None = None  # the last write, if it is small and a reader keeps up
        self.newest_offset = -1  # where it begins, in the log and in the segment's file
        self.newest_position = -1
        self.lock = threading.RLock()  # of the segments and the end: held for moments, as every append takes it
        self.log = log
        self._unsynced = unsynced
        self._headroom = headroom

    def append_usual(self, records: memoryview, leader_epoch: int, now_ms: int) -> Appended | None:
        """What PartitionLog.append does for a client, if `records` is one batch about which nothing is special; else
        None, and nothing has happened. OSError or MemoryError if the write
        fails; then nothing has happened, either."""
        return None

    def outgrown(self, segment: SegmentTail, size: int, next_offset: int, now_ms: int) -> bool:
        """Whether this write would make a segment, which is not empty, too large or too old."""
        config, index = self.config, segment._index
        return (
            segment.size + size > config.segment_bytes
            or now_ms - segment.first_append_ms >= config.segment_ms
            or next_offset - segment.base_offset > _MAX_RELATIVE_OFFSET
            or (index is not None and 8 * len(index.offsets) >= config.segment_index_bytes)
        )

    def grown(self) -> None:
        """There is something in the log that is not synced."""
        self._unsynced.add(self.log)

    def write(self, segment: SegmentTail, records: memoryview) -> None:
        """Put what is stamped into the active segment's file. OSError or MemoryError, and the file is as before, if
        that fails."""
        newest = bytes(records) if self.followed and len(records) <= _KEPT_BYTES else None
        self._unsynced.add(self.log)  # first what may need memory: after the write nothing may fail
        with segment.file as file:
            try:
                file.append((records,))
            except (OSError, MemoryError):
                failing.cut_back(self, segment, file)
                raise
        self.newest, self.newest_offset, self.newest_position = newest, self.end_offset, segment.size
        self.followed = False
        self.bytes_since_checkpoint += len(records)
        self.changed = True


class TailView:
    """What a log shows of its tail, for as much as it costs to look there directly."""

    __slots__ = ("tail",)

    tail: LogTail

    @property
    def start_offset(self) -> int:
        return self.tail.start_offset

    @property
    def end_offset(self) -> int:
        return self.tail.end_offset

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self.tail.segments

    @property
    def config(self) -> TopicConfig:
        return self.tail.config

    @property
    def offline(self) -> OSError | None:
        return self.tail.offline

    @property
    def epochs(self) -> LeaderEpochs:
        return self.tail.epochs

    @property
    def producers(self) -> ProducerStates:
        return self.tail.producers

    @property
    def committed_offset(self) -> int | None:
        return self.tail.committed_offset

    @property
    def cuts(self) -> int:
        return self.tail.cuts

    @property
    def bytes_since_checkpoint(self) -> int:
        return self.tail.bytes_since_checkpoint
