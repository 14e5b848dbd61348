"""State that follows from the batches of a log, and the protocol by which a log keeps it right.

Which producers have written what, which transactions were aborted, which leader wrote from where on, which message ids
were seen: all of it could be read from the log again, and is kept beside it because reading takes long. Each kind is
one class that implements `DerivedState`, and one entry in the list in states.py. The parts of a log (appending,
recovery, truncation, trimming, compaction, syncing) only walk over that list and know no kind by name.

What a state has stored counts after a crash only up to `LogOnDisk.safe_to`: behind it the log may have lost what the
state tells of. A state says how far it got, and is told of all later batches again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any, ClassVar, NamedTuple, Protocol

from msgspec import Struct

from headrace.log.checkpoint import Checkpoint
from headrace.log.partition_folder import PartitionFolder
from headrace.log.reading import segment_at
from headrace.log.segment import Segment
from headrace.log.visible import is_thinned
from headrace.model.topic_config import TopicConfig
from headrace.wire.batches import CONTROL, NOTE, BatchHeader, Buffer
from headrace.wire.end_markers import EndMarker, read_marker

_WINDOW_BYTES = 16 << 10


PRODUCER, MARKER, GAPS, EPOCH, PLAIN, NOTES = 1, 2, 4, 8, 16, 32
"""What a batch may tell: of a producer; how a transaction ended; that offsets have no record; that a leader epoch
begins; nothing of all that; or that it is a note (wire/notes.py)."""


def news_in(header: BatchHeader, begins_epoch: bool) -> int:
    """Which of these things a batch tells."""
    news = PRODUCER if header.producer_id >= 0 else 0
    if header.attributes & CONTROL:
        news |= NOTES if header.attributes & NOTE else MARKER
    if is_thinned(header):
        news |= GAPS
    if begins_epoch:
        news |= EPOCH
    return news


class StoredBatch(Struct, gc=False):
    """One batch that lies in the log. Its bytes are read from the segment when they are needed."""

    header: BatchHeader
    now_ms: int
    _buffer: Buffer | None
    _at: int
    """Where it begins in the buffer; without a buffer, in the file of the segment."""
    ids: list[bytes] | None = None
    """The digests of its message ids, if deduplication has looked for them before the write."""
    _segment: Segment | None = None
    _marker: EndMarker | None = None

    def stored(self) -> tuple[Buffer, int]:
        """A buffer, and where the batch begins in it. May wait for the disk while a log is opened or cut."""
        if self._buffer is None:
            assert self._segment is not None
            self._buffer, self._at = self._segment.peek(self._at, self.header.size, wait=True), 0
        return self._buffer, self._at

    def marker(self) -> EndMarker | None:
        """How it ends a transaction; None if it does not."""
        if self._marker is None and self.header.is_control:
            self._marker = read_marker(*self.stored())
        return self._marker


class LogOnDisk(Struct):
    """What a state may look at when it is loaded, cut or started over."""

    folder: PartitionFolder
    segments: Sequence[Segment]
    start_offset: int
    end_offset: int
    safe_to: int
    """Files that tell of anything from this offset on may be of another history, which a crash has taken away."""
    clean: bool
    """The log was closed cleanly, and everything stored is as of its end."""
    config: TopicConfig
    now_ms: int
    names: Sequence[str] | None = None

    @property
    def checkpoint(self) -> Checkpoint:
        return self.folder.checkpoint

    def named(self, suffix: str) -> list[int]:
        """The offsets in the names of all files with this suffix, rising."""
        names = self.folder.names() if self.names is None else self.names
        return sorted(int(name[: -len(suffix)]) for name in names if name.endswith(suffix))

    def batches(self, start: int, below: int | None = None) -> Iterator[StoredBatch]:
        """Every batch that begins from `start` on and before `below`, by default the end of the log."""
        below = self.end_offset if below is None else below
        if start >= below:
            return
        first_place = segment_at(self.segments, start)
        ends = [*(segment.base_offset for segment in self.segments[first_place + 1 :]), self.end_offset]
        for segment, end in zip(self.segments[first_place:], ends, strict=True):
            if segment.base_offset >= below:
                return
            first = segment.locate(start, wait=True) if start > segment.base_offset else 0
            for position, header in segment.headers(first, segment.size, wait=True, window_bytes=_WINDOW_BYTES):
                if header.base_offset >= below:
                    return
                if header.base_offset < segment.base_offset or header.next_offset > end:
                    continue  # its offsets, which no CRC covers, are not those of its place: whoever reads it is told
                if header.base_offset >= start:
                    yield StoredBatch(header, self.now_ms, None, position, None, segment)


class Occasion(Enum):
    """Why a state is asked what is to be stored."""

    SYNC = "sync"  # everything before the moment's end will be on stable storage
    CHECKPOINT = "checkpoint"  # a sync, and the next start may begin at that end
    ROLL = "roll"  # a segment begins there, or the log was cut there; nothing may wait for the disk
    SETTLE = "settle"  # the checkpoint is about to be changed durably


class Moment(Struct):
    """The log at the moment of a snapshot."""

    occasion: Occasion
    folder: PartitionFolder
    end_offset: int
    segments: Sequence[Segment]
    now_ms: int
    fields: dict[str, bool]
    """What the checkpoint is to say for a state (`has_producers`, `thinned`); filled in by that state."""
    stops: bool = False
    """The log is being closed."""

    @property
    def bases(self) -> list[int]:
        return [segment.base_offset for segment in self.segments]


class Store(NamedTuple):
    """What a state wants written, captured at one moment."""

    write: Callable[[], None]
    durable: bool
    """The synced offset waits for it, and an OSError fails the sync. Otherwise it is written later, best effort."""


class Trim(NamedTuple):
    """What was dropped at the front of a log."""

    start_offset: int
    readable_from: int
    """Nobody reads a batch before this offset any more. It may lie before the start: a file that has gone may still be
    read by somebody who asked before."""
    now_ms: int


class Join(NamedTuple):
    """What compaction is about to put in the place of some segments."""

    folder: PartitionFolder
    bases: Sequence[int]
    """The base offsets of all segments before that."""
    first: int
    following: int
    """The new file has everything from `first` on and before `following`."""
    dropped_markers: Collection[int]
    """Markers that are no longer in it, nor is any record of their transactions."""
    lock: AbstractContextManager[Any]
    """The tail's lock: without it, appends go on meanwhile."""


class DerivedState(Protocol):
    """One kind of derived state. Its methods are called with the tail's lock held, or while the log opens, unless they
    say otherwise; what may wait for the disk says so."""

    __slots__ = ()

    hears: int
    """Of which batches it is told: a sum of PRODUCER, MARKER, GAPS, EPOCH and NOTES. With PLAIN it is told of every
    batch."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """Its files `NNN + suffix` that belong to the segment at NNN, and go when that goes."""
    asks_others: ClassVar[bool] = False
    """Its `load` needs the states before it in the list, up to the end of the log."""

    def load(self, log: LogOnDisk) -> int:
        """Take what is stored; it is as of the offset that is returned, and all batches from there on are told again.
        What is stored behind `safe_to` must not survive. May wait for the disk."""
        ...

    def appended(self, batch: StoredBatch) -> None:
        """This is the next batch of the log that it hears of: appended by a leader or a follower, or found when the log
        was opened or cut; then also batches of which it does not hear."""
        ...

    def cut_back(self, log: LogOnDisk) -> None:
        """The log ends at `log.end_offset` now. May wait for the disk; nobody appends meanwhile, but some may read."""
        for batch in log.batches(self.load(log)):
            self.appended(batch)

    def restarted(self, log: LogOnDisk) -> None:
        """The log is empty and starts at `log.start_offset`. Its files must be gone; the folder is synced later."""
        ...

    def trimmed(self, trim: Trim) -> None:
        """The log has become shorter at the front, or at least older."""
        return

    def joining(self, join: Join) -> None:
        """Segments are about to be replaced by one. The swap may still not come about. Called with the sync lock held,
        not the log's lock: it waits for the disk, and an OSError stops the swap."""
        return

    def reconfigured(self, log: LogOnDisk) -> None:
        """The topic's settings have changed."""
        return

    def snapshot(self, moment: Moment) -> Store | None:
        """What is to be stored on this occasion. Does not write it."""
        return None


def load(states: Sequence[DerivedState], log: LogOnDisk) -> None:
    """Load all states, and tell each of what it does not know yet. Blocks."""
    behind: list[tuple[int, DerivedState]] = []
    for state in states:
        if state.asks_others:
            _catch_up(behind, log)
            behind = []
        known_to = state.load(log)
        if known_to < log.end_offset:
            behind.append((known_to, state))
    _catch_up(behind, log)


def _catch_up(behind: Sequence[tuple[int, DerivedState]], log: LogOnDisk) -> None:
    """One pass over the batches for all of them."""
    if not behind:
        return
    for batch in log.batches(min(known_to for known_to, _ in behind)):
        base_offset = batch.header.base_offset
        for known_to, state in behind:
            if base_offset >= known_to:
                state.appended(batch)
