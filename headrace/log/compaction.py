"""Compaction: of each key only the last record stays, in sealed segments; offsets never change.

Called by logs.py for topics with cleanup.policy=compact. One run: note the last offset of each key in the dirty part
(cleaned_to to the active segment), run everything before it through cleaning.py, write what is left to `.cleaned`
files, and swap them in (swapping.py). Neighbouring segments that together fit into one are joined. The work goes in
steps of about a megabyte through Disk.off_loop: between two steps the event loop and other work have their turn, so a
run of hours delays nobody by more than one step's hold on the interpreter.

The active segment is never touched, nor are records younger than min.compaction.lag.ms, nor segments from the first on
that has a record of a transaction that is open: only what is decided can supersede something.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import pairwise
from typing import Final

from headrace.log.cleaning import Decided, KeyMap, clean
from headrace.log.indexes import SegmentIndex
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import Segment, Shelf, segment_path
from headrace.log.swapping import Swap
from headrace.wire.batches import walk

_STEP_BYTES: Final = 1 << 20
_KEY_MAP_BYTES: Final = 64 << 20
_MAX_SPAN: Final = 1 << 30  # offsets in one file; an index has room for twice as many


def dirty_segments(log: PartitionLog, now_ms: int) -> tuple[Segment, ...]:
    """The sealed segments that may be compacted now: up to the first with a record that is too young or undecided."""
    allowed: list[Segment] = []
    lag_ms = log.config.min_compaction_lag_ms
    decided_below = log.decided_below()
    segments = log.segments
    for segment, following in pairwise(segments):
        if following.base_offset > decided_below:
            break
        if lag_ms > 0 and segment.base_offset >= log.cleaned_to and now_ms - segment.newest_timestamp() < lag_ms:
            break
        allowed.append(segment)
    return tuple(allowed)


def is_due(log: PartitionLog, now_ms: int) -> bool:
    """Enough of the log is dirty, or a dirty record has waited too long."""
    allowed = dirty_segments(log, now_ms)
    dirty = _dirty(log, allowed)
    dirty_bytes = sum(segment.size for segment in dirty)
    if not dirty_bytes:
        return False
    total = sum(segment.size for segment in allowed)
    if dirty_bytes / total >= log.config.min_cleanable_dirty_ratio:
        return True
    return any(now_ms - segment.first_append_ms > log.config.max_compaction_lag_ms for segment in dirty)


def _dirty(log: PartitionLog, sealed: Sequence[Segment]) -> list[Segment]:
    """Those with records that no run has noted yet."""
    ends = [segment.base_offset for segment in log.segments[1:]]
    return [segment for segment, end in zip(sealed, ends, strict=False) if end > log.cleaned_to]


class Compactor:
    def __init__(self, shelf: Shelf, *, step_bytes: int = _STEP_BYTES, key_map_bytes: int = _KEY_MAP_BYTES) -> None:
        self._shelf = shelf
        self._step_bytes = step_bytes
        self._key_map_bytes = key_map_bytes

    async def compact_if_due(self, log: PartitionLog, now_ms: int) -> bool:
        disk = self._shelf.disk
        if not await disk.off_loop(is_due, log, now_ms):
            return False
        steps = self.steps(log, now_ms)
        while await disk.off_loop(next, steps, False):
            pass
        return True

    def compact(self, log: PartitionLog, now_ms: int) -> None:
        """All steps at once; blocks."""
        for _ in self.steps(log, now_ms):
            pass

    def steps(self, log: PartitionLog, now_ms: int) -> Iterator[bool]:
        """The work, as an iterator that does a piece of it per `next`; yields True until all is done."""
        try:
            yield from self._run(log, now_ms)
        except FileNotFoundError:
            return  # the log was truncated or trimmed meanwhile; the next run starts with what is left

    def _run(self, log: PartitionLog, now_ms: int) -> Iterator[bool]:
        cuts = log.cuts
        sealed = dirty_segments(log, now_ms)
        end_offset = log.end_offset
        decided = Decided(log.aborted_txns.spans())
        keys = KeyMap(self._key_map_bytes)
        for segment in _dirty(log, sealed):
            if not (yield from self._note_keys(segment, keys, decided, log.cleaned_to)):
                break
        if keys.next_offset <= log.cleaned_to:
            return
        if log.synced_offset < end_offset:
            log.sync()  # no record may go for one, or for a marker, that a power cut can still take
            yield True
        groups = _groups(sealed, keys.next_offset, log.config.segment_bytes)
        for place, group in enumerate(groups):
            last = place + 1 == len(groups)
            cleaned_to = keys.next_offset if last else log.cleaned_to
            swap = Swap(tuple(group), segment_path(log.directory, group[0].base_offset, ".cleaned"), cleaned_to, cuts)
            yield from self._clean_group(log, swap, keys, decided, now_ms)

    def _note_keys(
        self, segment: Segment, keys: KeyMap, decided: Decided, dirty_from: int
    ) -> Generator[bool, None, bool]:
        """False when the map is full."""
        for chunk in _chunks(segment, self._step_bytes):
            for at, header in walk(chunk):
                if header.next_offset <= dirty_from:  # the log may start within a batch
                    continue
                if not keys.add_batch(chunk, at, aborted=decided.is_aborted(header)):
                    return False
            yield True
        return True

    def _clean_group(
        self, log: PartitionLog, swap: Swap, keys: KeyMap, decided: Decided, now_ms: int
    ) -> Iterator[bool]:
        """Write what is left of these segments to one new file, and swap it in."""
        try:
            decided.dropped_markers.clear()
            index = yield from self._write_cleaned(log, swap, keys, decided, now_ms)
            log.replace_segments(swap, index, decided.dropped_markers)
        finally:
            self._shelf.disk.remove(swap.cleaned)  # there only if it did not become part of the log
        yield True

    def _write_cleaned(
        self, log: PartitionLog, swap: Swap, keys: KeyMap, decided: Decided, now_ms: int
    ) -> Generator[bool, None, SegmentIndex]:
        file = self._shelf.disk.open(swap.cleaned, create=True)
        try:
            file.truncate(0)
            index = _IndexInMaking(swap.old[0], log.config.index_interval_bytes)
            for segment in swap.old:
                position = 0
                for chunk in _chunks(segment, self._step_bytes):
                    position += len(chunk)
                    with log.tail.lock:  # an append may be giving producers other places
                        last_offsets = log.producers.last_offsets()
                    left = clean(
                        chunk,
                        keys,
                        decided,
                        now_ms=now_ms,
                        delete_retention_ms=log.config.delete_retention_ms,
                        producer_last_offsets=last_offsets,
                        ends_segment=segment is swap.old[-1] and position == segment.size,
                    )
                    index.add(left)
                    file.append((left,))
                    yield True
            file.sync()
        finally:
            file.close()
        return index.finished()


class _IndexInMaking:
    """The index of the file that compaction writes."""

    def __init__(self, first: Segment, interval_bytes: int) -> None:
        self._index = SegmentIndex()
        self._base_offset = first.base_offset
        self._interval_bytes = interval_bytes
        self._size = 0
        self._indexed_to = 0
        self._newest = -1

    def add(self, batches: bytearray) -> None:
        for at, header in walk(batches):
            position = self._size + at
            if position - self._indexed_to >= self._interval_bytes:
                self._index.add(header.base_offset - self._base_offset, position, self._newest)
                self._indexed_to = position
            self._newest = max(self._newest, header.max_timestamp)
        self._size += len(batches)

    def finished(self) -> SegmentIndex:
        self._index.add_time(self._newest, self._size)
        self._index.covered = self._size
        return self._index


def _groups(sealed: Sequence[Segment], below: int, segment_bytes: int) -> list[list[Segment]]:
    """Neighbours whose bytes fit into one segment, for as far as keys are known."""
    groups: list[list[Segment]] = []
    size = 0
    for segment in sealed:
        if segment.base_offset >= below:
            break
        fits = groups and size + segment.size <= segment_bytes
        spans = groups and segment.base_offset - groups[-1][0].base_offset > _MAX_SPAN
        if fits and not spans:
            groups[-1].append(segment)
            size += segment.size
        else:
            groups.append([segment])
            size = segment.size
    return groups


def _chunks(segment: Segment, step_bytes: int) -> Iterator[bytes]:
    """The segment's bytes in runs of whole batches."""
    position = 0
    while position < segment.size:
        chunk = segment.peek(position, min(step_bytes, segment.size - position), wait=True)
        whole = sum(header.size for _, header in walk(chunk))
        if not whole:
            header = next(segment.headers(position, segment.size, wait=True))[1]
            chunk, whole = segment.peek(position, header.size, wait=True), header.size
        yield chunk[:whole]
        position += whole
