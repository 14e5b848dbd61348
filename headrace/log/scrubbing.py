"""Reading what was written long ago, to find what a disk has let rot while somebody else still has a good copy.

Called by replicas.scrub, off the event loop, piece by piece. Recovery and reads look at the end of a log and at what
clients ask for; here everything is looked at. What holds: only whole batches that lie before the end of the log are
judged, and a segment that retention or compaction has taken away meanwhile is nobody's damage.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.log.partition_log import PartitionLog
from headrace.wire.batches import HEADER_BYTES, MAGIC, PREFIX_BYTES, Buffer, crc_ok, read_header
from headrace.world.disk import is_lack

PIECE_BYTES = 1 << 20


class Scrubbed(NamedTuple):
    next_offset: int
    """Where to go on."""
    size: int
    """What was read, in bytes; 0 at the end of the log."""
    damaged_at: int | None = None
    """The offset from which on a batch is not what was written."""


def scrub(log: PartitionLog, offset: int) -> Scrubbed:
    """Check about a mebibyte from `offset` on; blocks. A lack of descriptors or memory says nothing about the disk, and
    is raised."""
    offset = max(offset, log.start_offset)
    below = log.end_offset
    if log.offline is not None or offset >= below:
        return Scrubbed(offset, 0)
    cuts = log.cuts
    try:
        data = log.read(offset, PIECE_BYTES, below, at_least_one=True).load()
        at, expected = _judged(data, offset)
        whole = at == len(data) and bool(data)
    except OSError as error:  # the index or a header led astray
        if is_lack(error):
            raise
        data, expected, whole = b"", offset, False
    if not whole and log.cuts == cuts and log.start_offset <= expected < log.end_offset and _still(log, expected):
        return Scrubbed(expected, len(data), expected)
    return Scrubbed(max(expected, offset), len(data))


def _judged(data: Buffer, offset: int) -> tuple[int, int]:
    """(bytes of good batches, the offset behind them)."""
    view, at = memoryview(data), 0
    while at + HEADER_BYTES <= len(view):
        header = read_header(view, at)
        if header.magic != MAGIC or header.length < HEADER_BYTES - PREFIX_BYTES or at + header.size > len(view):
            break
        if not crc_ok(view, at, header) or header.next_offset <= offset - 1:
            break
        at, offset = at + header.size, header.next_offset
    return at, offset


def _still(log: PartitionLog, offset: int) -> bool:
    """Whether the batch at `offset` is bad when it is read once more: the file may have been replaced meanwhile."""
    try:
        data = log.read(offset, 1, log.end_offset, at_least_one=True).load()
    except OSError as error:
        if is_lack(error):
            raise
        return True
    return bool(data) and _judged(data, offset)[0] != len(data)
