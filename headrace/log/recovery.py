"""Opening a partition folder: without a scan after a clean stop, and back to the last whole batch after a crash.

1. Names. Leftovers of unfinished work go (`.tmp`, `.cleaned`, `.deleted`); a compaction whose result is durable
   (`.swap`) is brought to its end; an unfinished restart of the log too.
2. The checkpoint (checkpoint.py) says where the scan starts. Nothing before its recovery point is looked at.
3. What lies before the recovery point is compared with the list of sealed segments (sealed.py); what is missing there
   is told, and the rest is served.
4. From the recovery point on every batch is read and its CRC checked, segment by segment. The first batch that is
   incomplete, malformed, out of place or has a wrong CRC ends the log: it and all that follows it are removed, durably.
   Base offset and leader epoch are outside the CRC, so they are compared with those of the neighbours. A segment that
   does not start where the one before it ends is removed, too: every segment keeps its last batch, if only as a header
   (cleaning.py).
5. Derived states (derived.py) are loaded, and told of the batches that what they had stored does not cover.

A log that is shorter than its recovery point has lost bytes that were on stable storage. That is no incomplete write:
the disk is broken, or a person changed the file. Such a log stays offline until an operator decides. Runs off the event
loop.
"""

from __future__ import annotations

import errno
import re
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from msgspec import Struct

from headrace.log import checkpoint as checkpoints
from headrace.log import derived, identity, sealed
from headrace.log.checkpoint import Checkpoint
from headrace.log.derived import LogOnDisk
from headrace.log.indexes import SegmentIndex
from headrace.log.partition_folder import PartitionFolder
from headrace.log.segment import INDEX_SUFFIXES, Segment, Shelf, segment_path
from headrace.log.states import LogStates
from headrace.model.topic_config import TopicConfig
from headrace.wire.batches import HEADER_BYTES, MAGIC, PREFIX_BYTES, BatchHeader, crc_ok, read_header

_CHUNK_BYTES = 8 << 20
_MAX_RELATIVE_OFFSET = 0x7FFFFFFF  # in a segment; before a tail exceeds it, it begins another one
_LEFTOVERS = (".tmp", ".cleaned", ".deleted")
_NUMBERED = re.compile(r"\d{20}\.")
_SWAP = re.compile(r"(\d{20})-(\d{20})\.swap")


class Loaded(Struct):
    """A partition's state as found on disk."""

    folder: PartitionFolder
    states: LogStates
    segments: list[Segment]
    start_offset: int
    end_offset: int
    clean: bool
    scanned_bytes: int = 0
    damage: OSError | None = None

    @property
    def directory(self) -> Path:
        return self.folder.directory

    @property
    def topic_id(self) -> uuid.UUID:
        return self.folder.topic_id

    @property
    def checkpoint(self) -> Checkpoint:
        return self.folder.checkpoint


def unborn(shelf: Shelf, directory: Path, topic_id: uuid.UUID, config: TopicConfig, now_ms: int) -> Loaded:
    """A partition without records: nothing of it is on disk before its first record."""
    segment = Segment(shelf, directory, 0, 0, config.index_interval_bytes)
    segment.file.absent = True
    segment.file.prepare = partial(identity.make_folder, shelf.disk, directory, topic_id)
    folder = PartitionFolder(shelf.disk, directory, topic_id, Checkpoint())
    loaded = Loaded(folder, LogStates(shelf.producers), [segment], start_offset=0, end_offset=0, clean=False)
    _load_states(loaded, config, 0, now_ms, names=[])
    return loaded


def load(shelf: Shelf, directory: Path, config: TopicConfig, now_ms: int) -> Loaded:
    """Open the folder; blocks."""
    disk = shelf.disk
    point = checkpoints.load(disk, directory) or Checkpoint()
    folder = PartitionFolder(disk, directory, identity.load(disk, directory), point)
    states = LogStates(shelf.producers)
    names = _tidy(folder, disk.list_dir(directory), states.suffixes())
    bases = sorted(int(name[:20]) for name in names if name.endswith(".log"))
    while len(bases) > 1 and bases[1] <= point.start_offset:
        folder.remove(bases.pop(0), (".log", *INDEX_SUFFIXES, *states.suffixes()))
    segments = [
        Segment(
            shelf, directory, base, disk.file_size(segment_path(directory, base, ".log")), config.index_interval_bytes
        )
        for base in bases
    ]
    if not segments:
        bases = [point.start_offset]
        segments = [Segment(shelf, directory, point.start_offset, 0, config.index_interval_bytes)]
        segments[0].file.absent = True
    segments = states.sealed.check(folder, segments, _whole_batches)
    active = segments[-1]
    active.first_append_ms = point.first_append_ms if active.base_offset == point.segment else now_ms
    loaded = Loaded(
        folder,
        states,
        segments,
        # Where the first segments are missing it stays: followers would drop the records that this log has lost.
        start_offset=point.start_offset if point.generation else segments[0].base_offset,
        end_offset=max(point.recovery_point, active.base_offset),
        clean=point.clean and (active.base_offset, active.size) == (point.segment, point.position),
    )
    safe_to = loaded.end_offset if loaded.clean else _scan(loaded)
    folder.names_unsynced = not loaded.clean
    if loaded.damage is None:
        _load_states(loaded, config, safe_to, now_ms, names)
    return loaded


def _load_states(loaded: Loaded, config: TopicConfig, safe_to: int, now_ms: int, names: list[str]) -> None:
    log = LogOnDisk(
        folder=loaded.folder,
        segments=loaded.segments,
        start_offset=loaded.start_offset,
        end_offset=loaded.end_offset,
        safe_to=min(safe_to, loaded.end_offset),
        clean=loaded.clean,
        config=config,
        now_ms=now_ms,
        names=names,
    )
    derived.load(loaded.states.walk, log)


# -- names ------------------------------------------------------------------------------------------------------------


def _tidy(folder: PartitionFolder, names: list[str], suffixes: tuple[str, ...]) -> list[str]:
    disk, directory = folder.disk, folder.directory
    for name in names:
        if name.endswith(_LEFTOVERS):
            disk.remove(directory / name)
    names = [name for name in names if not name.endswith(_LEFTOVERS)]
    if folder.checkpoint.restart_at is not None:
        gone = [name for name in names if _is_of_a_segment(name, suffixes) or _SWAP.fullmatch(name)]
        for name in gone:
            disk.remove(directory / name)
        disk.sync_dir(directory)
        return [name for name in names if name not in gone]
    for swap in [name for name in names if _SWAP.fullmatch(name)]:
        names = _finish_swap(folder, swap, names, suffixes)
    return names


def _is_of_a_segment(name: str, suffixes: tuple[str, ...]) -> bool:
    return bool(_NUMBERED.match(name)) and name[20:] in (".log", *INDEX_SUFFIXES, *suffixes)


def swap_name(first_base: int, following_base: int) -> str:
    """The file that stands for all segments from `first_base` up to, not including, `following_base`."""
    return f"{first_base:020d}-{following_base:020d}.swap"


def _finish_swap(folder: PartitionFolder, swap: str, names: list[str], suffixes: tuple[str, ...]) -> list[str]:
    """Put a compacted file, durable under its swap name, in the place of the segments it stands for."""
    disk, directory = folder.disk, folder.directory
    first, following = int(swap[:20]), int(swap[21:41])
    replaced = [name for name in names if _is_of_a_segment(name, suffixes) and first <= int(name[:20]) < following]
    stays = {segment_path(directory, first, suffix).name for suffix in suffixes}
    gone = [name for name in replaced if name not in stays]
    for name in (*gone, sealed.NAME):  # the list may still tell of the old file
        disk.remove(directory / name)
    disk.sync_dir(directory)
    target = segment_path(directory, first, ".log")
    disk.rename(directory / swap, target)
    disk.sync_dir(directory)
    return [name for name in names if name not in gone and name != swap] + [target.name]


# -- scan -------------------------------------------------------------------------------------------------------------


def _scan(loaded: Loaded) -> int:
    """Find the end of a log that was not closed. From where on it was read: what is before that was safe."""
    point = loaded.checkpoint
    segments = loaded.segments
    at = next((i for i in reversed(range(len(segments))) if segments[i].base_offset <= point.recovery_point), 0)
    position, expected = 0, segments[at].base_offset
    if segments[at].base_offset == point.segment:
        position, expected = point.position, point.recovery_point
    start = expected
    if point.generation and expected > max(point.recovery_point, point.start_offset):  # the rest was deleted
        loaded.damage = _damage(loaded, f"begins at offset {expected}")
        return start
    if segments[at].size < position:
        loaded.damage = _damage(loaded, "is shorter than it was")
        return start
    for place in range(at, len(segments)):
        segment = segments[place]
        if segment.base_offset != expected and place > at:  # what came before it is lost: a hole, not a gap
            if expected >= point.recovery_point:
                _remove_from(loaded, place)
            break
        size = segment.size
        below = segments[place + 1].base_offset if place + 1 < len(segments) else None
        expected = _scan_segment(loaded, segment, position, expected, below)
        position = 0
        if segment.size < size:
            with segment.file as file:
                file.truncate(segment.size)
                file.sync()
            _remove_from(loaded, place + 1)
            break
        if place + 1 < len(segments):
            segment.store_index(segment.encode_index())
    loaded.end_offset = expected
    if expected < point.recovery_point:
        loaded.damage = _damage(loaded, f"ends at offset {expected}")
    return start


def _remove_from(loaded: Loaded, place: int) -> None:
    """Newest first, each durably, so that a second crash leaves no hole."""
    folder = loaded.folder
    while len(loaded.segments) > place:
        later = loaded.segments.pop()
        later.file.close()
        folder.remove(later.base_offset, (".log", *INDEX_SUFFIXES, *loaded.states.suffixes()))
        folder.sync_names()


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


def _scan_segment(loaded: Loaded, segment: Segment, start: int, expected: int, below: int | None) -> int:
    """The offset after the last valid batch. Sets the segment's size and index."""
    stored = segment.stored_index()
    index = _start_of_index(segment, stored, start)
    newest = index.max_timestamp()
    indexed_to = index.positions[-1] if index.positions else 0
    end = start
    for position, header in _in_place(segment, start, expected, below):
        if position - indexed_to >= segment.interval_bytes:
            index.add(header.base_offset - segment.base_offset, position, newest)
            indexed_to = position
        newest = max(newest, header.max_timestamp)
        end = position + header.size
        expected = header.next_offset
    loaded.scanned_bytes += segment.size - start
    if stored.reach > end:
        segment.remove_stored_index()
    index.add_time(newest, end)
    index.covered = segment.size = end
    segment.adopt_index(index)
    return expected


def _whole_batches(segment: Segment) -> tuple[int, int]:
    """(size, next offset) of what can be used of a sealed segment that is damaged."""
    size, expected = 0, segment.base_offset
    for position, header in _in_place(segment, 0, expected, None):
        size, expected = position + header.size, header.next_offset
    return size, expected


def _in_place(segment: Segment, start: int, expected: int, below: int | None) -> Iterator[tuple[int, BatchHeader]]:
    """Sound batches, as long as their offsets rise up to `below`, and their leader epochs never fall. If two of them
    contradict each other and there is a jump before the earlier one, then that one is wrong."""
    limit = segment.base_offset + _MAX_RELATIVE_OFFSET if below is None else below
    held: tuple[int, BatchHeader] | None = None
    epoch, jumps = -1, False
    for position, header in _sound_batches(segment, start):
        fits = header.next_offset <= limit or (below is None and position == 0)
        if not fits or header.base_offset < expected or header.leader_epoch < epoch:
            if jumps:
                held = None
            break
        if held is not None:
            yield held
        jumps = header.base_offset > expected or header.leader_epoch > epoch >= 0
        held, expected, epoch = (position, header), header.next_offset, header.leader_epoch
    if held is not None:
        yield held


def _sound_batches(segment: Segment, position: int) -> Iterator[tuple[int, BatchHeader]]:
    """Whole batches with the right CRC, read in large pieces."""
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
                    or header.last_offset_delta < 0
                    or position + at + header.size > size
                ):
                    return
                if at + header.size > len(chunk):
                    break
                if not crc_ok(view, at, header):
                    return
                yield position + at, header
                at += header.size
            if at == 0:  # one batch larger than a chunk
                if len(chunk) < HEADER_BYTES:
                    return
                header = read_header(view)
                chunk = file.pread(header.size, position)
                if len(chunk) < header.size or not crc_ok(chunk, 0, header):
                    return
                yield position, header
                at = header.size
            position += at
