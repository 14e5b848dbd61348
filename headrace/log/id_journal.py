"""The ids of a partition's window on disk, so that a start need not read the log for them.

Files `NNN.ids`, each a run of frames, big-endian; NNN is the offset from which on it tells.

    frame   kind (1), next offset (8), time in ms (8), producer id or -1 (8), ids (4), the ids' digests (16 each),
            CRC32C of all that (4)

    kind    1  the ids count from that time on; with a producer id: its transaction was committed
            2  the ids were stored in a transaction of that producer
            3  the producer's transaction was aborted
            4  all before the next offset has been told

Frames are collected in memory and written when the log is synced, after its data, without a sync of their own: what the
files do not tell is read from the log. Reading ends at the first frame that is not valid or tells of an offset that the
log does not have; what follows is cut off, durably, because those offsets may be given to other records. A file is
synced before the next is begun, so only the last can be torn. A file goes when all in it is older than the window.

Written under the log's sync lock; `note` under its lock. Owned by dedup.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from headrace.log.id_window import DIGEST_BYTES
from headrace.wire.checksum import crc32c
from headrace.world.disk import Disk

SUFFIX = ".ids"
_HEAD = struct.Struct(">BqqqI")
_CRC = struct.Struct(">I")
_FILE_BYTES = 4 << 20
_FILES = 8  # into about so many the window is divided


class Kind(IntEnum):
    COUNTED = 1
    PENDING = 2
    ABORTED = 3
    COVERED = 4


class Frame(NamedTuple):
    kind: int
    next_offset: int
    time_ms: int
    producer_id: int
    digests: Sequence[bytes] = ()


class _IdFile(Struct):
    base_offset: int
    size: int = 0
    started_ms: int = 0
    newest_ms: int = 0


class IdJournal:
    def __init__(self, disk: Disk, directory: Path, covered: int = 0) -> None:
        self.covered = covered
        """All before this offset has been noted."""
        self._disk = disk
        self._directory = directory
        self._files: list[_IdFile] = []
        self._unwritten = bytearray()
        self._written_to = covered

    @property
    def is_new(self) -> bool:
        return not self._files

    # -- writing ------------------------------------------------------------------------------------------------------

    def note(self, frame: Frame) -> None:
        self._unwritten += _encoded(frame)
        self.covered = frame.next_offset

    def take(self, end_offset: int, now_ms: int) -> int:
        """How many bytes of frames are to be written; all before `end_offset` is in them or has been written before."""
        if end_offset == self.covered and not self._unwritten and self._files:
            return 0
        self.note(Frame(Kind.COVERED, end_offset, now_ms, -1))
        return len(self._unwritten)

    def write(self, size: int, end_offset: int, *, now_ms: int, window_ms: int, needed_from: int) -> None:
        """Append what `take` counted; blocks. Files older than the window go, up to the one that has `needed_from`."""
        if not size:
            return
        frames = bytes(self._unwritten[:size])
        try:
            newest = self._file_to_write(now_ms, window_ms)
            file = self._disk.open(self._path(newest.base_offset), create=True)
            try:
                file.truncate(newest.size)
                file.append((frames,))
            finally:
                file.close()
        except (OSError, MemoryError):
            return  # a full disk: they are written later
        del self._unwritten[:size]
        newest.size += len(frames)
        newest.newest_ms = now_ms
        self._written_to = end_offset
        while len(self._files) > 1 and (
            now_ms - self._files[0].newest_ms >= window_ms and self._files[1].base_offset <= needed_from
        ):
            self._disk.remove(self._path(self._files.pop(0).base_offset))

    def _file_to_write(self, now_ms: int, window_ms: int) -> _IdFile:
        newest = self._files[-1] if self._files else None
        if newest is not None:
            is_old = now_ms - newest.started_ms > window_ms // _FILES
            if (newest.size < _FILE_BYTES and not is_old) or newest.base_offset >= self._written_to:
                return newest
            file = self._disk.open(self._path(newest.base_offset))
            try:
                file.sync()
            finally:
                file.close()
        self._files.append(_IdFile(self._written_to, 0, now_ms, now_ms))
        return self._files[-1]

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, end_offset: int) -> Iterator[Frame]:
        """All frames of a log that ends at `end_offset`; to be read to the end. Blocks."""
        names = self._names()
        for place, name in enumerate(names):
            data = self._disk.read_bytes(self._directory / name)
            found = _IdFile(int(name[: -len(SUFFIX)]))
            self._files.append(found)
            for frame, end in _decoded(data):
                if frame.next_offset > end_offset:
                    break
                found.started_ms = found.started_ms or frame.time_ms
                found.size, found.newest_ms = end, frame.time_ms
                self.covered = self._written_to = frame.next_offset
                yield frame
            if found.size < len(data):
                self._cut(found, names[place + 1 :])
                return

    def _cut(self, last: _IdFile, later: Sequence[str]) -> None:
        for name in later:
            self._disk.remove(self._directory / name)
        file = self._disk.open(self._path(last.base_offset))
        try:
            file.truncate(last.size)
            file.sync()
        finally:
            file.close()
        self._disk.sync_dir(self._directory)

    def remove(self) -> None:
        """Take all files away."""
        for name in self._names():
            self._disk.remove(self._directory / name)
        self._files.clear()

    def _names(self) -> list[str]:
        if not self._disk.exists(self._directory):
            return []  # nothing has been appended yet
        return sorted(name for name in self._disk.list_dir(self._directory) if name.endswith(SUFFIX))

    def _path(self, base_offset: int) -> Path:
        return self._directory / f"{base_offset:020d}{SUFFIX}"


def _encoded(frame: Frame) -> bytes:
    head = _HEAD.pack(frame.kind, frame.next_offset, frame.time_ms, frame.producer_id, len(frame.digests))
    body = b"".join((head, *frame.digests))
    return body + _CRC.pack(crc32c(body))


def _decoded(data: bytes) -> Iterator[tuple[Frame, int]]:
    """Each valid frame from the start on, and where it ends."""
    at = 0
    while at + _HEAD.size + _CRC.size <= len(data):
        kind, next_offset, time_ms, producer_id, count = _HEAD.unpack_from(data, at)
        first = at + _HEAD.size
        crc_at = first + DIGEST_BYTES * count
        if crc_at + _CRC.size > len(data) or _CRC.unpack_from(data, crc_at)[0] != crc32c(data[at:crc_at]):
            return
        digests = [data[place : place + DIGEST_BYTES] for place in range(first, crc_at, DIGEST_BYTES)]
        at = crc_at + _CRC.size
        yield Frame(kind, next_offset, time_ms, producer_id, digests), at
