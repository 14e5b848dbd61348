"""Sparse indexes of one segment: by offset and by time. In memory they are plain arrays.

Files `NNN.index` and `NNN.timeindex`, little-endian, the same shape for both:

    header  16 bytes   magic "HRIX" or "HRTX" (4), version 1 (2), zeros (2), base offset of the segment (8)
    blocks             covered (8), entries (4), CRC32C of what follows and of the first twelve bytes (4), the entries

    index entry      8 bytes   base offset of a batch minus the segment's (4), its position in the .log file (4)
    timeindex entry 12 bytes   a timestamp (8), a position (4): no batch before the position has a later timestamp

A block is appended whenever the log's recovery point moves; `covered` says up to which position of the .log file the
entries so far are complete. A sealed segment has one block. Validity: a reader takes blocks until one is cut short,
fails its CRC, or covers less than the one before. Entries that lie behind the log's end are dropped by the caller,
which knows the end. Nothing here is ever synced: an index that does not cover its segment is made anew from the headers
in the .log.

Reading: the entry with the largest offset (or the largest timestamp below the wanted one), then batch by batch.
"""

from __future__ import annotations

import struct
import sys
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from headrace.wire.checksum import crc32c

HEADER = struct.Struct("<4sHHq")
BLOCK = struct.Struct("<qII")
OFFSET_MAGIC = b"HRIX"
TIME_MAGIC = b"HRTX"
VERSION = 1

_OFFSET_ENTRY_BYTES = 8
_TIME_ENTRY_BYTES = 12


class SegmentIndex:
    """Both indexes of one segment. Offsets are relative to the segment's base."""

    __slots__ = (
        "blocks",
        "covered",
        "offsets",
        "positions",
        "reach",
        "time_positions",
        "times",
        "written",
        "written_times",
    )

    def __init__(self) -> None:
        self.offsets = array("I")
        self.positions = array("I")
        self.times = array("q")
        self.time_positions = array("I")
        self.covered = 0  # log bytes whose batches have had their chance of an entry
        self.reach = 0  # log bytes of which one of the files speaks; more than `covered` where the other was lost
        self.written = 0  # entries that are in the file already
        self.written_times = 0
        self.blocks = 0

    def add(self, relative_offset: int, position: int, max_timestamp_before: int) -> None:
        """A batch starts at `position`; the batches before it have at most this timestamp."""
        self.positions.append(position)  # positions first: another thread may be searching the offsets
        self.offsets.append(relative_offset)
        self.add_time(max_timestamp_before, position)

    def add_time(self, max_timestamp_before: int, position: int) -> None:
        if max_timestamp_before >= 0 and (not self.times or max_timestamp_before > self.times[-1]):
            self.time_positions.append(position)
            self.times.append(max_timestamp_before)

    def position_of(self, relative_offset: int) -> int:
        """Where to start looking for an offset."""
        at = bisect_right(self.offsets, relative_offset) - 1
        return self.positions[at] if at >= 0 else 0

    def start_of(self, relative_offset: int) -> int | None:
        """Where the batch lies that begins with just this offset, if it has an entry."""
        at = bisect_left(self.offsets, relative_offset)
        return self.positions[at] if at < len(self.offsets) and self.offsets[at] == relative_offset else None

    def position_of_time(self, timestamp_ms: int) -> int:
        """Where to start looking for the first batch with this or a later timestamp."""
        at = bisect_left(self.times, timestamp_ms) - 1
        return self.time_positions[at] if at >= 0 else 0

    def boundary_at_or_before(self, position: int) -> int:
        """The last known start of a batch that is not behind `position`; 0 if there is none."""
        at = bisect_right(self.positions, position) - 1
        return self.positions[at] if at >= 0 else 0

    def max_timestamp(self) -> int:
        """The latest of the batches that are covered, once the index is complete."""
        return self.times[-1] if self.times else -1

    def cut(self, position: int) -> None:
        """Forget what speaks of log bytes from `position` on."""
        keep = bisect_left(self.positions, position)
        del self.offsets[keep:], self.positions[keep:]
        keep = bisect_right(self.time_positions, position)
        del self.times[keep:], self.time_positions[keep:]
        self.covered = min(self.covered, position)
        self.written = self.written_times = self.blocks = 0  # the files say too much: they are written anew

    def size_bytes(self) -> int:
        return _OFFSET_ENTRY_BYTES * len(self.offsets) + _TIME_ENTRY_BYTES * len(self.times)

    def encode(self, base_offset: int) -> tuple[bytes, bytes]:
        """What to append to the two files: with headers if nothing has been written yet."""
        count = len(self.offsets) - self.written
        offset_entries = array("I", bytes(_OFFSET_ENTRY_BYTES * count))
        offset_entries[0::2] = self.offsets[self.written :]
        offset_entries[1::2] = self.positions[self.written :]
        times, positions = self.times[self.written_times :], self.time_positions[self.written_times :]
        index = _block(self.covered, count, _little(offset_entries).tobytes())
        timeindex = _block(self.covered, len(times), _little(times).tobytes() + _little(positions).tobytes())
        if not self.blocks:
            index = HEADER.pack(OFFSET_MAGIC, VERSION, 0, base_offset) + index
            timeindex = HEADER.pack(TIME_MAGIC, VERSION, 0, base_offset) + timeindex
        return index, timeindex

    def mark_written(self) -> None:
        self.written = len(self.offsets)
        self.written_times = len(self.times)
        self.blocks += 1


def decode(index: bytes, timeindex: bytes, base_offset: int) -> SegmentIndex:
    """The index that the files hold as far as they are valid; `covered` says how far that is."""
    found = SegmentIndex()
    covered = 0
    for block_covered, body in _blocks(index, OFFSET_MAGIC, base_offset, _OFFSET_ENTRY_BYTES):
        entries = _little(array("I", body))
        found.offsets.extend(entries[0::2])
        found.positions.extend(entries[1::2])
        covered = block_covered
        found.blocks += 1
    for block_covered, body in _blocks(timeindex, TIME_MAGIC, base_offset, _TIME_ENTRY_BYTES):
        count = len(body) // _TIME_ENTRY_BYTES
        found.times.extend(_little(array("q", body[: 8 * count])))
        found.time_positions.extend(_little(array("I", body[8 * count :])))
        found.covered = block_covered
    found.reach = max(found.covered, covered)
    found.covered = min(found.covered, covered)
    found.written, found.written_times = len(found.offsets), len(found.times)
    return found


def _block(covered: int, count: int, body: bytes) -> bytes:
    head = struct.pack("<qI", covered, count)
    return BLOCK.pack(covered, count, crc32c(body, crc32c(head))) + body


def _blocks(data: bytes, magic: bytes, base_offset: int, entry_bytes: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    if len(data) < HEADER.size or HEADER.unpack_from(data) != (magic, VERSION, 0, base_offset):
        return found
    at, last_covered = HEADER.size, 0
    while at + BLOCK.size <= len(data):
        covered, count, crc = BLOCK.unpack_from(data, at)
        stop = at + BLOCK.size + count * entry_bytes
        if stop > len(data) or covered < last_covered:
            break
        body = data[at + BLOCK.size : stop]
        if crc32c(body, crc32c(data[at : at + 12])) != crc:
            break
        found.append((covered, body))
        at, last_covered = stop, covered
    return found


def _little(values: array[int]) -> array[int]:
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values


class Indexed(Protocol):
    """What the shelf can ask to let its index go."""

    def drop_index(self) -> None: ...


class IndexShelf:
    """Bounds the memory of indexes of sealed segments: the one unused for longest goes."""

    def __init__(self, capacity_bytes: int = 32 << 20) -> None:
        self._capacity_bytes = capacity_bytes
        self._sizes: OrderedDict[Indexed, int] = OrderedDict()
        self._total = 0
        self._lock = threading.Lock()

    def keep(self, owner: Indexed, size_bytes: int) -> None:
        dropped: list[Callable[[], None]] = []
        with self._lock:
            self._total += size_bytes - self._sizes.pop(owner, 0)
            self._sizes[owner] = size_bytes
            while self._total > self._capacity_bytes and len(self._sizes) > 1:
                oldest, size = self._sizes.popitem(last=False)
                self._total -= size
                dropped.append(oldest.drop_index)
        for drop in dropped:
            drop()

    def forget(self, owner: Indexed) -> None:
        with self._lock:
            self._total -= self._sizes.pop(owner, 0)
