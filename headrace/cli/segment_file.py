"""Reads a segment file batch by batch, without a broker, with all checks that need only the file.

Called by `log dump`. Invariant: each length in the file is checked against the size of the file before use, and damage
is never an exception but a `Damage` with the position where it starts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from headrace.model.failure import Failure

if TYPE_CHECKING:
    from headrace.wire.batches import BatchHeader
    from headrace.wire.record import Record

SEGMENT_SUFFIX = ".log"


@dataclass(frozen=True)
class StoredBatch:
    position: int
    header: "BatchHeader"
    content: bytes
    crc_ok: bool


@dataclass(frozen=True)
class Damage:
    position: int
    reason: str


def find_segments(path: Path) -> list[Path]:
    """The segment itself, or all segments in a folder and its subfolders, in offset order."""
    if path.is_file():
        return [path]
    if not path.exists():
        raise Failure(f"{path} does not exist: give a segment file or a partition folder")
    segments = sorted(path.rglob(f"*{SEGMENT_SUFFIX}"))
    if not segments:
        raise Failure(f"no segment (*{SEGMENT_SUFFIX}) in {path}: give the data folder or a partition folder")
    return segments


def read_segment(path: Path) -> Iterator[StoredBatch | Damage]:
    """Every batch in order. A batch with a wrong CRC is followed by its Damage; a torn one ends the iteration."""
    try:
        with path.open("rb") as file:
            yield from read_batches(file, path.stat().st_size)
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from None


def read_batches(file: BinaryIO, end: int) -> Iterator[StoredBatch | Damage]:
    from headrace.wire.batches import HEADER_BYTES, MAGIC, PREFIX_BYTES, crc_ok, read_header

    position = 0
    next_offset = -1
    while position < end:
        left = end - position
        start = file.read(min(HEADER_BYTES, left))
        if len(start) < HEADER_BYTES:
            yield Damage(position, f"torn tail: {left} bytes left, but a batch header has {HEADER_BYTES}")
            return
        header = read_header(start)
        if header.magic != MAGIC or header.length < HEADER_BYTES - PREFIX_BYTES:
            yield Damage(position, f"no batch starts here (format {header.magic}, length {header.length})")
            return
        if header.size > left:
            yield Damage(position, f"torn tail: the batch has {header.size} bytes, but only {left} are left")
            return
        content = start + file.read(header.size - HEADER_BYTES)
        if len(content) < header.size:
            yield Damage(position, "torn tail: the file became shorter while it was read")
            return
        good = crc_ok(content, 0, header)
        yield StoredBatch(position, header, content, good)
        if not good:
            yield Damage(position, f"the batch at offset {header.base_offset} does not match its CRC")
        if header.base_offset < next_offset:
            yield Damage(position, f"offset {header.base_offset} comes after offset {next_offset - 1}")
        next_offset = header.next_offset
        position += header.size


def read_records(batch: StoredBatch) -> "list[Record] | Damage":
    """The records of a batch, decompressed."""
    from headrace.wire.errors import Malformed
    from headrace.wire.records import decode

    try:
        return decode(batch.content)
    except Malformed as error:
        return Damage(
            batch.position, f"cannot decode the records of the batch at offset {batch.header.base_offset}: {error}"
        )
