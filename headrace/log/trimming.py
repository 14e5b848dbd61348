"""Making a log shorter from the front: retention and DeleteRecords.

A part of a log, made anew for each time that it is needed. A new start is made durable before the files behind it go,
so no crash brings old records back with a hole after them. All of it blocks, and delays no append.
"""

from __future__ import annotations

from typing import Any

from headrace.log.derived import Trim
from headrace.log.doomed import DoomedFiles
from headrace.log.durability import Durability
from headrace.log.failing import refusal, write_failed
from headrace.log.partition_folder import PartitionFolder
from headrace.log.retention import Limits, SegmentFacts, segments_to_drop
from headrace.log.rolling import Rolling
from headrace.log.segment import Segment
from headrace.log.states import LogStates
from headrace.log.tail import LogTail
from headrace.wire.errors import ErrorCode, KafkaError

_TRIM_MS = 60_000


class Trimming:
    __slots__ = ("_doomed", "_durability", "_folder", "_rolling", "_states", "_tail")

    def __init__(
        self,
        tail: LogTail,
        folder: PartitionFolder,
        states: LogStates,
        durability: Durability,
        rolling: Rolling,
        doomed: DoomedFiles,
    ) -> None:
        self._tail = tail
        self._folder = folder
        self._states = states
        self._durability = durability
        self._rolling = rolling
        self._doomed = doomed

    def advance_start(self, offset: int) -> None:
        """DeleteRecords: nothing before `offset` is read any more, durably; whole segments before it go."""
        tail = self._tail
        with self._durability.sync_lock:
            with tail.lock:
                if tail.offline is not None:
                    raise refusal(tail)
                if offset > tail.end_offset:
                    raise KafkaError(
                        ErrorCode.offset_out_of_range,
                        f"{self._folder.directory.name} ends at {tail.end_offset}, nothing to delete up to {offset}",
                    )
                offset = min(offset, self._states.scheduled.needed_from(tail.committed_offset, deleting=True))
            if offset <= tail.start_offset:
                return
            self._sync_up_to(offset)
            self._move_front(offset, sum(segment.base_offset <= offset for segment in tail.segments[1:]))

    def apply_retention(self, now_ms: int) -> int:
        """Drop segments that are too old, too many or before the start; the number of segments dropped."""
        tail = self._tail
        with self._durability.sync_lock:
            tail.segments[0].newest_timestamp()  # may wait for the disk, so before appends have to wait for us
            with tail.lock:
                tail.now_ms = max(now_ms, tail.now_ms)
                if tail.offline is not None:
                    return 0
                count = self._committed(self._droppable(now_ms))
                if count == len(tail.segments):
                    self._rolling.begin_segment(now_ms)
                count = self._without_what_waits(count)
            if count:
                first = tail.segments[count].base_offset
                self._sync_up_to(first)
                self._move_front(max(tail.start_offset, first), count)
            self._doomed.purge(now_ms)
            self._tell_states(now_ms)
            return count

    def pause_ms(self) -> int:
        """After `apply_retention`: for how long nothing else can become too old."""
        config = self._tail.config
        waits_ms = [_TRIM_MS, config.segment_ms // 2, config.file_delete_delay_ms // 2]
        if config.retention_ms >= 0:
            waits_ms.append(config.retention_ms // 2)
        return min(waits_ms)

    def _droppable(self, now_ms: int) -> int:
        tail = self._tail
        config, segments = tail.config, tail.segments
        ends = [segment.base_offset for segment in segments[1:]] + [tail.end_offset]
        facts = [
            SegmentFacts(segment.base_offset, segment.size, end, lambda segment=segment: _newest_ms(segment, now_ms))  # type: ignore[misc]
            for segment, end in zip(segments, ends, strict=True)
        ]
        return segments_to_drop(
            facts,
            Limits(
                start_offset=min(tail.start_offset, segments[-1].base_offset),
                retention_ms=config.retention_ms if config.deleted else -1,
                retention_bytes=config.retention_bytes if config.deleted else -1,
            ),
            now_ms,
        )

    def _committed(self, count: int) -> int:
        """How many of these segments may go: none with what is not committed, as far as this log has been told."""
        tail = self._tail
        if tail.committed_offset is None:
            return count
        ends = [*(segment.base_offset for segment in tail.segments[1:]), tail.end_offset]
        return sum(end <= tail.committed_offset for end in ends[:count])

    def _without_what_waits(self, count: int) -> int:
        """How many of these segments may go: no replica drops one with a record that waits for its time. A leader that
        is told of it writes such records again (replicas/reparking.py)."""
        tail, scheduled = self._tail, self._states.scheduled
        scheduled.unwanted_before = 0
        if not count or not scheduled.noted:
            return count
        needed = scheduled.needed_from(tail.committed_offset)
        kept = sum(segment.base_offset <= needed for segment in tail.segments[1 : count + 1])
        if kept < count:
            scheduled.unwanted_before = tail.segments[count].base_offset
        return kept

    def _sync_up_to(self, offset: int) -> None:
        """What says that nothing before `offset` is needed must be as safe as the new start."""
        tail = self._tail
        self._durability.sync_up_to(tail.end_offset if self._states.scheduled.noted else offset)

    def _move_front(self, start: int, count: int) -> None:
        """The log starts at `start` from now on, and its first `count` segments go. If that cannot be written down,
        nothing has changed, and it can be tried again."""
        tail = self._tail
        first = tail.segments[count].base_offset
        changes: dict[str, Any] = {"start_offset": start}
        if self._folder.checkpoint.recovery_point < first:
            changes |= {"recovery_point": first, "segment": first, "position": 0, "has_producers": True}
        if count:
            try:
                self._states.snapshots.secure(first, self._folder)
            except (OSError, MemoryError) as error:
                raise write_failed(tail, error) from error
        self._durability.settle(**changes)
        with tail.lock:
            dropped, tail.segments = tail.segments[:count], tail.segments[count:]
            tail.start_offset = start
        for segment in dropped:
            self._doomed.add(segment, tail.now_ms + tail.config.file_delete_delay_ms)
        self._tell_states(tail.now_ms)

    def _tell_states(self, now_ms: int) -> None:
        tail = self._tail
        with tail.lock:
            readable_from = min([tail.segments[0].base_offset, *self._doomed.base_offsets()])
            trim = Trim(tail.start_offset, readable_from, now_ms)
            for state in self._states.walk:
                state.trimmed(trim)


def _newest_ms(segment: Segment, now_ms: int) -> int:
    """The age of a segment is that of its newest record; records without a time count from their arrival."""
    newest = segment.newest_timestamp()
    if newest >= 0:
        return newest
    return segment.first_append_ms if segment.first_append_ms >= 0 else now_ms
