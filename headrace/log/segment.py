"""One segment: a run of record batches in `NNN.log`, NNN being the offset of its first, with its two indexes.

The .log file is nothing but whole batches (wire/batches.py), one after the other; what lies behind `size` does not
count. Only the last segment of a partition, the active one, grows. Its indexes are in memory and its newest batches
are known one by one (tail.py), so that a reader there needs no lookup on disk. Sealed segments load their indexes when
they are needed, and the shelf drops them again.

Whatever may need the disk takes `wait`: without it, `NotCached` says that the answer is not in memory. Called by
partition_log.py and its neighbours; only the event loop's thread appends.
"""

from __future__ import annotations

import errno
import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from headrace.log.files import FilePool
from headrace.log.headroom import Headroom
from headrace.log.indexes import IndexShelf, SegmentIndex, decode
from headrace.log.producer_state import ProducerLimits
from headrace.log.tail import SegmentTail
from headrace.wire.batches import HEADER_BYTES, MAGIC, PREFIX_BYTES, BatchHeader, read_header
from headrace.world.disk import Disk, is_lack

INDEX_SUFFIXES = (".index", ".timeindex")
_WINDOW_BYTES = 4096


class NotCached(Exception):
    """The answer needs bytes that are not in memory; ask again where waiting is allowed."""


class Shelf(Struct, frozen=True):
    """What all segments of a broker share."""

    disk: Disk
    files: FilePool
    indexes: IndexShelf
    producers: ProducerLimits = ProducerLimits()
    headroom: Headroom | None = None


def segment_path(directory: Path, base_offset: int, suffix: str) -> Path:
    return directory / f"{base_offset:020d}{suffix}"


class Segment(SegmentTail):
    __slots__ = ("_shelf", "directory", "index_fresh")

    def __init__(self, shelf: Shelf, directory: Path, base_offset: int, size: int, interval_bytes: int) -> None:
        self._shelf = shelf
        self.interval_bytes = interval_bytes
        self._index = None
        self._indexed_to = 0
        self._recent_ends = array("q")
        self._recent_positions = array("I")
        self._recent_floor = 1 << 62
        self.directory = directory
        self.base_offset = base_offset
        self.file = shelf.files.file(segment_path(directory, base_offset, ".log"))
        self.size = size
        self.first_append_ms = -1
        self.max_timestamp = -1 if size == 0 else None
        self.index_stale = False
        self.index_fresh = False  # what is stored next replaces the files

    # -- growing ------------------------------------------------------------------------------------------------------

    def activate(self, end_offset: int) -> None:
        """Make ready for appending at `end_offset`, off the hot path."""
        index = self._index = self.index(wait=True)
        self._shelf.indexes.forget(self)
        self._indexed_to = index.positions[-1] if index.positions else 0
        self.max_timestamp = self.newest_timestamp()
        del self._recent_ends[:], self._recent_positions[:]
        self._recent_floor = end_offset

    @property
    def active(self) -> bool:
        return self._recent_floor != 1 << 62

    def seal(self) -> None:
        """No more batches will come. The next `store_index` replaces its files by one block each."""
        index = self.index(wait=True)
        index.written = index.written_times = index.blocks = 0  # one block instead of one per checkpoint
        self._recent_floor = 1 << 62
        del self._recent_ends[:], self._recent_positions[:]
        self.index_stale = True

    def cut(self, position: int, end_offset: int) -> None:
        """Drop everything from `position` on, in the file and in memory, and be the active segment."""
        index = self.index(wait=True)
        self.remove_stored_index()
        with self.file as file:
            file.truncate(position)
            file.sync()
        self.cut_index(index, position)
        self.max_timestamp = index.max_timestamp()
        self.size = index.covered = position
        self._index = index
        self.index_stale = True
        self.activate(end_offset)

    # -- indexes ------------------------------------------------------------------------------------------------------

    def index(self, *, wait: bool) -> SegmentIndex:
        index = self._index
        if index is None:
            index = self._load_index(wait)
            if (index.covered, index.reach) != (self.size, self.size):
                if not wait:
                    raise NotCached
                index = self.rebuilt_index()
            self._index = index
            self._shelf.indexes.keep(self, index.size_bytes())
        return index

    def adopt_index(self, index: SegmentIndex) -> None:
        """Take an index that recovery or compaction has made for exactly these bytes."""
        self._index = index
        self.max_timestamp = index.max_timestamp()
        self.index_stale = True

    def drop_index(self) -> None:
        if not self.active and not self.index_stale:
            self._index = None

    def newest_timestamp(self) -> int:
        """The latest timestamp of the segment's batches; may wait for the disk."""
        if self.max_timestamp is None:
            self.max_timestamp = self.index(wait=True).max_timestamp()
        return self.max_timestamp

    def encode_index(self) -> tuple[bytes, bytes]:
        """What `store_index` is to append to the two files; nothing may be appended to the log meanwhile."""
        index = self.index(wait=True)
        index.add_time(self.newest_timestamp(), self.size)
        index.covered = self.size
        encoded = index.encode(self.base_offset)
        self.index_fresh = not index.blocks
        index.mark_written()
        self.index_stale = False
        return encoded

    def store_index(self, encoded: tuple[bytes, bytes]) -> None:
        """A failure (a full disk) costs a rebuild at worst, so it is no error."""
        try:
            for suffix, data in zip(INDEX_SUFFIXES, encoded, strict=True):
                file = self._shelf.disk.open(segment_path(self.directory, self.base_offset, suffix), create=True)
                try:
                    if self.index_fresh:
                        file.truncate(0)
                    file.append((data,))
                finally:
                    file.close()
        except (OSError, MemoryError):
            self.index_not_stored()
            return
        if not self.active:
            self._shelf.indexes.keep(self, self.index(wait=True).size_bytes())

    def index_not_stored(self) -> None:
        """What `encode_index` gave has not been stored as a whole: the next time, all of it is."""
        index = self.index(wait=True)
        index.written = index.written_times = index.blocks = 0
        self.index_stale = True

    def _load_index(self, wait: bool) -> SegmentIndex:
        if self.size == 0:
            return SegmentIndex()
        data: list[bytes] = []
        for suffix in INDEX_SUFFIXES:
            try:
                file = self._shelf.disk.open(segment_path(self.directory, self.base_offset, suffix))
            except OSError as error:
                if is_lack(error):
                    raise
                return SegmentIndex()  # it is made again from the batches
            try:
                found = file.pread(file.size(), 0) if wait else file.pread_cached(file.size(), 0)
            finally:
                file.close()
            if found is None:
                raise NotCached
            data.append(found)
        return decode(data[0], data[1], self.base_offset)

    def cut_index(self, index: SegmentIndex, position: int) -> None:
        """Make the index that of the bytes before `position`, latest timestamp included."""
        index.cut(position)
        newest = index.max_timestamp()
        for _, header in self.headers(index.time_positions[-1] if index.times else 0, position, wait=True):
            newest = max(newest, header.max_timestamp)
        index.add_time(newest, position)

    def remove_stored_index(self) -> None:
        """Take the files away, durably, before bytes that they speak of are gone: the log may grow to the same size
        again, with other batches, and a crash may leave the files as they were."""
        for suffix in INDEX_SUFFIXES:
            self._shelf.disk.remove(segment_path(self.directory, self.base_offset, suffix))
        self._shelf.disk.sync_dir(self.directory)

    def stored_index(self) -> SegmentIndex:
        """The index as the files have it, valid as far as its `covered` says."""
        return self._load_index(wait=True)

    def rebuilt_index(self) -> SegmentIndex:
        """The index made anew from the batch headers."""
        index = SegmentIndex()
        max_timestamp, indexed_to = -1, 0
        for position, header in self.headers(0, self.size, wait=True):
            if position - indexed_to >= self.interval_bytes:
                index.add(header.base_offset - self.base_offset, position, max_timestamp)
                indexed_to = position
            max_timestamp = max(max_timestamp, header.max_timestamp)
        index.add_time(max_timestamp, self.size)
        index.covered = self.size
        return index

    # -- finding ------------------------------------------------------------------------------------------------------

    def locate(self, offset: int, *, wait: bool) -> int:
        """Where the first batch lies that ends behind `offset`; the segment's size if there is none."""
        if not wait and offset >= self._recent_floor:  # `wait` means another thread, and the arrays move
            ends = self._recent_ends
            if len(ends) > 1 and ends[-2] <= offset < ends[-1]:
                return self._recent_positions[-1]  # of the last batch: what a reader asks for that keeps up
            at = bisect_right(ends, offset)
            return self._recent_positions[at] if at < len(ends) else self.size
        index, relative_offset = self.index(wait=wait), offset - self.base_offset
        start = index.start_of(relative_offset)
        if start is not None:
            return start  # without reading the file: a reader that continues asks for the end of its last answer
        size = self.size
        for position, header in self.headers(index.position_of(relative_offset), size, wait=wait):
            if header.base_offset + header.last_offset_delta >= offset:
                return position
        return size

    def boundary_at_or_before(self, position: int, *, wait: bool) -> int:
        """The last start of a batch that is known without looking into the file; 0 if none is."""
        recent = self._recent_positions
        if not wait and recent and recent[0] <= position:
            return recent[bisect_right(recent, position) - 1]
        return self.index(wait=wait).boundary_at_or_before(position)

    def headers(
        self, position: int, stop: int, *, wait: bool, window_bytes: int = _WINDOW_BYTES
    ) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of every batch from `position` to `stop`."""
        window, window_at = b"", position
        while position < stop:
            if position + HEADER_BYTES > window_at + len(window):
                window, window_at = self.peek(position, min(window_bytes, stop - position), wait=wait), position
            try:
                header = read_header(window, position - window_at)
            except struct.error:
                raise self.damage(position) from None
            following = position + header.length + PREFIX_BYTES
            if header.magic != MAGIC or header.length < HEADER_BYTES - PREFIX_BYTES or following > stop:
                raise self.damage(position)
            yield position, header
            position = following

    def peek(self, position: int, size: int, *, wait: bool) -> bytes:
        with self.file as file:
            found = file.pread(size, position) if wait else file.pread_cached(size, position)
        if found is None:
            raise NotCached
        return found

    def damage(self, position: int) -> OSError:
        return OSError(errno.EIO, f"no record batch at byte {position}, though one was stored", str(self.file.path))
