"""Opening a partition folder: without a scan after a clean stop, and back to the last whole batch after a crash.

1. Names. Leftovers of unfinished work go (`.tmp`, `.cleaned`, `.deleted`); a compaction whose result is durable
   (`.swap`) is brought to its end; an unfinished restart of the log too.
2. The checkpoint (checkpoint.py) says where the scan starts. Nothing before its recovery point is looked at.
3. From there on every batch is read and its CRC checked, segment by segment. The first that is cut short, senseless,
   out of order or wrong ends the log: it and all that follows it are removed, durably. So does a segment that does not
   start where the one before it ends: every segment keeps its last batch, if only as a header (cleaning.py).
4. Indexes, leader epochs, producer state and aborted transactions are continued with what is seen on the way.

A log that is shorter than its recovery point has lost bytes that were on stable storage. That is not a torn tail but a
broken disk or a human hand, so such a log stays offline until somebody decides. Runs off the event loop.
"""

from __future__ import annotations

import errno
import re
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from msgspec import Struct

from headrace.log import aborted_txns, identity, leader_epochs, replay
from headrace.log import checkpoint as checkpoints
from headrace.log.aborted_txns import AbortedTxns
from headrace.log.checkpoint import Checkpoint
from headrace.log.indexes import SegmentIndex
from headrace.log.leader_epochs import LeaderEpochs
from headrace.log.producer_state import ProducerStates
from headrace.log.segment import Segment, Shelf, segment_path
from headrace.log.visible import is_thinned
from headrace.wire.batches import HEADER_BYTES, MAGIC, PREFIX_BYTES, BatchHeader, crc_ok, read_header

_CHUNK_BYTES = 8 << 20
_LEFTOVERS = (".tmp", ".cleaned", ".deleted")
_OF_A_SEGMENT = re.compile(r"\d{20}\.(log|index|timeindex|snapshot|txnindex)")
_SWAP = re.compile(r"(\d{20})-(\d{20})\.swap")


class Loaded(Struct):
    """A partition's state as found on disk."""

    directory: Path
    topic_id: uuid.UUID
    checkpoint: Checkpoint
    segments: list[Segment]
    start_offset: int
    end_offset: int
    epochs: LeaderEpochs
    producers: ProducerStates
    aborted_txns: AbortedTxns
    snapshots: list[int]
    clean: bool
    scanned_bytes: int = 0
    damage: OSError | None = None
    thinned: bool = False


def unborn(shelf: Shelf, directory: Path, topic_id: uuid.UUID, interval_bytes: int) -> Loaded:
    """A partition that nobody has written to: nothing of it is on disk before its first record is."""
    segment = Segment(shelf, directory, 0, 0, interval_bytes)
    segment.file.absent = True
    segment.file.prepare = partial(identity.make_folder, shelf.disk, directory, topic_id)
    return Loaded(
        directory=directory,
        topic_id=topic_id,
        checkpoint=Checkpoint(),
        segments=[segment],
        start_offset=0,
        end_offset=0,
        epochs=LeaderEpochs(),
        producers=ProducerStates(),
        aborted_txns=AbortedTxns(),
        snapshots=[],
        clean=False,
    )


def load(shelf: Shelf, directory: Path, interval_bytes: int, now_ms: int) -> Loaded:
    disk = shelf.disk
    point = checkpoints.load(disk, directory) or Checkpoint()
    names = _tidy(shelf, directory, disk.list_dir(directory), point)
    bases = sorted(int(name[:20]) for name in names if name.endswith(".log"))
    while len(bases) > 1 and bases[1] <= point.start_offset:
        _remove_segment(shelf, directory, bases.pop(0))
    segments = [
        Segment(shelf, directory, base, disk.file_size(segment_path(directory, base, ".log")), interval_bytes)
        for base in bases
    ]
    if not segments:
        bases = [point.start_offset]
        segments = [Segment(shelf, directory, point.start_offset, 0, interval_bytes)]
        segments[0].file.absent = True
    loaded = Loaded(
        directory=directory,
        topic_id=identity.load(disk, directory),
        checkpoint=point,
        segments=segments,
        start_offset=max(point.start_offset, bases[0]),
        end_offset=max(point.recovery_point, bases[-1]),
        epochs=leader_epochs.load(disk, directory),
        producers=ProducerStates(),
        aborted_txns=AbortedTxns(),
        snapshots=sorted(int(name[:20]) for name in names if name.endswith(".snapshot")),
        clean=True,
        thinned=point.thinned,
    )
    active = segments[-1]
    active.first_append_ms = point.first_append_ms if active.base_offset == point.segment else now_ms
    as_stopped = point.clean and (active.base_offset, active.size) == (point.segment, point.position)
    aborted = replay.stored_aborted(shelf, segments, names, point.segment)
    if as_stopped and aborted is not None and _load_producers(loaded, shelf):
        loaded.aborted_txns = aborted
        return loaded
    loaded.clean = False
    _scan(loaded, shelf, now_ms, aborted)
    return loaded


# -- names ------------------------------------------------------------------------------------------------------------


def _tidy(shelf: Shelf, directory: Path, names: list[str], point: Checkpoint) -> list[str]:
    disk = shelf.disk
    for name in names:
        if name.endswith(_LEFTOVERS):
            disk.remove(directory / name)
    names = [name for name in names if not name.endswith(_LEFTOVERS)]
    if point.restart_at is not None:
        for name in names:
            if _OF_A_SEGMENT.fullmatch(name) or _SWAP.fullmatch(name):
                disk.remove(directory / name)
        disk.sync_dir(directory)
        return [name for name in names if not (_OF_A_SEGMENT.fullmatch(name) or _SWAP.fullmatch(name))]
    for swap in [name for name in names if _SWAP.fullmatch(name)]:
        names = finish_swap(shelf, directory, swap, names)
    return names


def swap_name(first_base: int, following_base: int) -> str:
    """The file that stands for all segments from `first_base` up to, not including, `following_base`."""
    return f"{first_base:020d}-{following_base:020d}.swap"


def finish_swap(shelf: Shelf, directory: Path, swap: str, names: list[str]) -> list[str]:
    """Put a compacted file, durable under its swap name, in the place of the segments it stands for."""
    disk = shelf.disk
    first, following = int(swap[:20]), int(swap[21:41])
    replaced = [name for name in names if _OF_A_SEGMENT.fullmatch(name) and first <= int(name[:20]) < following]
    stays = {segment_path(directory, first, suffix).name for suffix in (".snapshot", aborted_txns.SUFFIX)}
    gone = [name for name in replaced if name not in stays]
    for name in gone:
        disk.remove(directory / name)
    disk.sync_dir(directory)
    target = segment_path(directory, first, ".log")
    disk.rename(directory / swap, target)
    disk.sync_dir(directory)
    return [name for name in names if name not in gone and name != swap] + [target.name]


def _remove_segment(shelf: Shelf, directory: Path, base: int) -> None:
    for suffix in (".log", ".index", ".timeindex", ".snapshot", aborted_txns.SUFFIX):
        shelf.disk.remove(segment_path(directory, base, suffix))


# -- scan -------------------------------------------------------------------------------------------------------------


def _scan(loaded: Loaded, shelf: Shelf, now_ms: int, aborted: AbortedTxns | None) -> None:
    point = loaded.checkpoint
    segments = loaded.segments
    at = next((i for i in reversed(range(len(segments))) if segments[i].base_offset <= point.recovery_point), 0)
    position, expected = 0, segments[at].base_offset
    if segments[at].base_offset == point.segment:
        position, expected = point.position, point.recovery_point
    if segments[at].size < position:
        loaded.damage = _damage(loaded, "is shorter than it was")
        return
    loaded.epochs.cut_tail(expected + 1)
    if expected != point.recovery_point or not _load_producers(loaded, shelf):
        loaded.producers = replay.rebuilt_producers(shelf, segments, loaded.snapshots, expected, now_ms)
    loaded.aborted_txns = replay.aborted_before(shelf, segments, loaded.snapshots, expected, now_ms, aborted)
    for place in range(at, len(segments)):
        segment = segments[place]
        if segment.base_offset != expected and place > at:  # what came before it is lost: a hole, not a gap
            _remove_from(loaded, shelf, place)
            break
        size = segment.size
        expected = _scan_segment(loaded, segment, position, expected, now_ms)
        position = 0
        if segment.size < size:
            with segment.file as file:
                file.truncate(segment.size)
                file.sync()
            _remove_from(loaded, shelf, place + 1)
            break
        if place + 1 < len(segments):
            segment.store_index(segment.encode_index())
    loaded.end_offset = expected
    loaded.epochs.cut_tail(expected)
    if expected < point.recovery_point:
        loaded.damage = _damage(loaded, f"ends at offset {expected}")


def _remove_from(loaded: Loaded, shelf: Shelf, place: int) -> None:
    """Newest first, each durably, so that a second crash leaves no hole."""
    while len(loaded.segments) > place:
        later = loaded.segments.pop()
        later.file.close()
        _remove_segment(shelf, loaded.directory, later.base_offset)
        shelf.disk.sync_dir(loaded.directory)


def _damage(loaded: Loaded, what: str) -> OSError:
    return OSError(
        errno.EIO,
        f"the log {what}, though everything before offset {loaded.checkpoint.recovery_point} was on stable storage; "
        f"restore the folder, or remove its file `{checkpoints.NAME}` to go on with what is left",
        str(loaded.directory),
    )


def _start_of_index(segment: Segment, index: SegmentIndex, position: int) -> SegmentIndex:
    """The index of what the scan does not look at, from the one that is stored."""
    if position == 0:
        return SegmentIndex()
    if index.covered < position:
        size, segment.size = segment.size, position
        index = segment.rebuilt_index()
        segment.size = size
    elif index.reach != position:
        segment.cut_index(index, position)
    return index


def _scan_segment(loaded: Loaded, segment: Segment, start: int, expected: int, now_ms: int) -> int:
    """The offset after the last valid batch. Sets the segment's size and index, continues epochs and producers."""
    stored = segment.stored_index()
    index = _start_of_index(segment, stored, start)
    newest = index.max_timestamp()
    indexed_to = index.positions[-1] if index.positions else 0
    end = start
    for position, header in _sound_batches(segment, start, expected):
        if position - indexed_to >= segment.interval_bytes:
            index.add(header.base_offset - segment.base_offset, position, newest)
            indexed_to = position
        newest = max(newest, header.max_timestamp)
        loaded.epochs.assign(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            replay.remember(segment, position, header, now_ms, loaded.producers, loaded.aborted_txns)
        loaded.thinned = loaded.thinned or is_thinned(header)
        end = position + header.size
        expected = header.next_offset
    loaded.scanned_bytes += segment.size - start
    if stored.reach > end:
        segment.remove_stored_index()
    index.add_time(newest, end)
    index.covered = segment.size = end
    segment.adopt_index(index)
    return expected


def _sound_batches(segment: Segment, position: int, expected: int) -> Iterator[tuple[int, BatchHeader]]:
    """Whole batches with the right CRC and rising offsets, read in large pieces."""
    size = segment.size
    with segment.file as file:
        while position + HEADER_BYTES <= size:
            chunk = file.pread(min(_CHUNK_BYTES, size - position), position)
            view = memoryview(chunk)
            at = 0
            while at + HEADER_BYTES <= len(chunk):
                header = read_header(view, at)
                if (
                    header.magic != MAGIC
                    or header.length < HEADER_BYTES - PREFIX_BYTES
                    or header.base_offset < expected
                    or header.last_offset_delta < 0
                    or position + at + header.size > size
                ):
                    return
                if at + header.size > len(chunk):
                    break
                if not crc_ok(view, at, header):
                    return
                yield position + at, header
                expected = header.next_offset
                at += header.size
            if at == 0:  # one batch larger than a chunk
                if len(chunk) < HEADER_BYTES:
                    return
                header = read_header(view)
                chunk = file.pread(header.size, position)
                if len(chunk) < header.size or not crc_ok(chunk, 0, header):
                    return
                yield position, header
                expected = header.next_offset
                at = header.size
            position += at


# -- producers --------------------------------------------------------------------------------------------------------


def _load_producers(loaded: Loaded, shelf: Shelf) -> bool:
    """Take the snapshot at the recovery point; False if there should be one and is not."""
    point = loaded.checkpoint
    if not point.has_producers:
        return True
    states = replay.read_snapshot(shelf, loaded.directory, point.recovery_point)
    if states is None:
        return False
    loaded.producers = states
    return True
