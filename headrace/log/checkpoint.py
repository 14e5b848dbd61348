"""What a partition needs to know when it is opened: where it begins, and from where on a crash may have left rubbish.

File `checkpoint`, big-endian, three slots of 512 bytes (a disk's sector), each one record of 76 bytes:

     0  magic "HRCP" (4)      4  version 1 (2)       6  flags (2): 1 clean, 2 has producers, 4 truncate, 8 restart,
                                                        16 thinned: some batch has fewer records than offsets,
                                                        32 noted: some batch is a note
     8  generation (8)       16  start offset (8)   24  recovery point (8)
    32  its segment (8)      40  its position in that segment's .log (8)
    48  first append to that segment in ms (8)      56  offset of an unfinished truncation or restart (8)
    64  end of the compacted part (8)               72  CRC32C of the 72 bytes before (4)

Slots 0 and 1 take turns by the generation's parity and are synced: a torn write never hurts the one before. Slot 2 is
a hint: it only moves the recovery point on, is not synced, and belongs to the generation it names. Reading: the valid
record of slots 0 and 1 with the larger generation; then slot 2, if it is valid and of that generation. So a lost hint
costs a longer scan and nothing else, and no hint outlives a truncation or a new start offset.

Everything before the recovery point is on stable storage, and indexes, epochs and the producer snapshot of that offset
have been written. `clean` says that the log ended there: nothing needs a scan if the .log file is that long.
"""

from __future__ import annotations

import logging
import struct
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from headrace.model.failure import other_version
from headrace.wire.checksum import crc32c
from headrace.world.disk import Disk

logger = logging.getLogger(__name__)

NAME = "checkpoint"
SLOT_BYTES = 512
_RECORD = struct.Struct(">4sHHqqqqqqqq")
_CRC = struct.Struct(">I")
_RECORD_BYTES = _RECORD.size + _CRC.size
_MAGIC = b"HRCP"
_VERSION = 1
_CLEAN, _HAS_PRODUCERS, _TRUNCATE, _RESTART, _THINNED, _NOTED = 1, 2, 4, 8, 16, 32


class Checkpoint(Struct, frozen=True):
    generation: int = 0
    start_offset: int = 0
    recovery_point: int = 0
    segment: int = 0
    position: int = 0
    first_append_ms: int = -1
    clean: bool = False
    has_producers: bool = False
    truncate_to: int | None = None
    restart_at: int | None = None
    cleaned_to: int = 0
    thinned: bool = False
    noted: bool = False

    def encode(self) -> bytes:
        flags = (
            (_CLEAN if self.clean else 0)
            | (_HAS_PRODUCERS if self.has_producers else 0)
            | (_TRUNCATE if self.truncate_to is not None else 0)
            | (_RESTART if self.restart_at is not None else 0)
            | (_THINNED if self.thinned else 0)
            | (_NOTED if self.noted else 0)
        )
        pending = self.truncate_to if self.truncate_to is not None else self.restart_at
        body = _RECORD.pack(
            _MAGIC,
            _VERSION,
            flags,
            self.generation,
            self.start_offset,
            self.recovery_point,
            self.segment,
            self.position,
            self.first_append_ms,
            -1 if pending is None else pending,
            self.cleaned_to,
        )
        return body + _CRC.pack(crc32c(body))


def decode(data: bytes) -> Checkpoint | None:
    """The record at the start of a slot; None if there is no valid one."""
    if len(data) < _RECORD_BYTES:
        return None
    body = data[: _RECORD.size]
    fields = _RECORD.unpack(body)
    magic, version, flags, generation, start, point, segment, position, first_ms, pending, cleaned = fields
    if magic != _MAGIC or version != _VERSION or crc32c(body) != _CRC.unpack_from(data, _RECORD.size)[0]:
        return None
    return Checkpoint(
        generation=generation,
        start_offset=start,
        recovery_point=point,
        segment=segment,
        position=position,
        first_append_ms=first_ms,
        clean=bool(flags & _CLEAN),
        has_producers=bool(flags & _HAS_PRODUCERS),
        truncate_to=pending if flags & _TRUNCATE else None,
        restart_at=pending if flags & _RESTART else None,
        cleaned_to=cleaned,
        thinned=bool(flags & _THINNED) or cleaned > 0,
        noted=bool(flags & _NOTED),
    )


def choose(data: bytes) -> Checkpoint | None:
    """The checkpoint that the file's three slots stand for."""
    slots = [decode(data[at : at + _RECORD_BYTES]) for at in (0, SLOT_BYTES, 2 * SLOT_BYTES)]
    settled = max((slot for slot in slots[:2] if slot is not None), key=lambda slot: slot.generation, default=None)
    hint = slots[2]
    if settled is not None and hint is not None and hint.generation == settled.generation:
        return hint
    return settled


def load(disk: Disk, directory: Path) -> Checkpoint | None:
    """None if there is none that can be used; Failure if a later version has written it."""
    path = directory / NAME
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        return None
    for at in (0, SLOT_BYTES, 2 * SLOT_BYTES):
        magic, version = data[at : at + 4], int.from_bytes(data[at + 4 : at + 6], "big")
        if magic == _MAGIC and version > _VERSION:
            raise other_version(path, version, _VERSION)
    found = choose(data)
    if found is None and any(data):  # zeros: a crash came before it was written for the first time
        logger.warning(
            "%s is damaged: the whole log is checked, and records that DeleteRecords took away may be back", path
        )
    return found


def settle(disk: Disk, directory: Path, checkpoint: Checkpoint) -> Checkpoint:
    """Write durably, as the next generation, which is returned. The name itself must have been synced at creation."""
    following = replace(checkpoint, generation=checkpoint.generation + 1)
    file = disk.open(directory / NAME, create=True)
    try:
        file.pwrite(following.encode(), SLOT_BYTES * (following.generation % 2))
        file.sync()
    finally:
        file.close()
    return following


def hint(disk: Disk, directory: Path, checkpoint: Checkpoint) -> None:
    """Move the recovery point on without waiting for the disk."""
    file = disk.open(directory / NAME, create=True)
    try:
        file.pwrite(checkpoint.encode(), 2 * SLOT_BYTES)
    finally:
        file.close()
