"""Deduplication by message id: a record whose `headrace.id` header was seen lately is acknowledged and not stored.

Only on topics with headrace.dedup.window.ms; there every batch is opened (opening.py). appending.py calls `sift` before
the write, which changes nothing; after it the ids are learned as every derived state learns (derived.py). A batch that
loses records is written anew with its producer id, sequences, offsets and codec, empty if it loses all: so retries,
replicas and a restart find what the producer sent, and an acknowledged duplicate is committed when its first is.

The ids are in id_window.py, on disk in id_journal.py. Time is this broker's when the record was stored, or when its
transaction was committed; what a start had to read from the log counts from then. A duplicate does not count anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

from headrace.log import timestamps
from headrace.log.derived import PLAIN, DerivedState, LogOnDisk, Moment, Occasion, Store, StoredBatch
from headrace.log.id_journal import Frame, IdJournal, Kind
from headrace.log.id_window import DIGEST_BYTES, NO_TRANSACTION, IdWindow
from headrace.log.note_pairs import OpenNote
from headrace.log.opening import Keeps, OpenBatch, Scan, scanned_note
from headrace.log.producer_state import ProducerStates
from headrace.log.reading import segment_at
from headrace.wire import records as wire_records
from headrace.wire.batches import BatchHeader
from headrace.wire.errors import Malformed
from headrace.wire.notes import NoteKind, read_note


def _digests(values: Sequence[bytes | None]) -> list[bytes | None]:
    return [_digest(value) for value in values]


ID_SCAN = Scan(b"headrace.id", _digests)
_SCANS = (ID_SCAN,)


class Sifted(NamedTuple):
    """Which records of a produced run of batches are stored."""

    keeps: Keeps
    fresh: list[list[bytes]]
    """Of each batch the ids that come with it."""
    dropped: int


class Dedup:
    def __init__(self, window: IdWindow, journal: IdJournal) -> None:
        self.window = window
        self.journal = journal
        self._open: tuple[OpenNote, list[bytes]] | None = None  # a note whose mates have not come, and its ids

    def sift(self, batches: Sequence[OpenBatch], now_ms: int) -> Sifted:
        """Leave out records whose ids are known now."""
        here: set[bytes] = set()
        fresh: list[list[bytes]] = []
        keeps: Keeps = []
        dropped = 0
        for batch in batches:
            (digests,) = batch.scanned
            keep = self._keep(digests, _transaction_of(batch.header), here, now_ms)
            fresh.append([digest for digest, kept in zip(digests, keep, strict=True) if kept and digest is not None])
            keeps.append(None if all(keep) else keep)
            dropped += len(keep) - sum(keep)
        return Sifted(keeps, fresh, dropped)

    def _keep(self, digests: Sequence[bytes | None], transaction: int, here: set[bytes], now_ms: int) -> list[bool]:
        keep: list[bool] = []
        for digest in digests:
            is_new = digest is None or not (digest in here or self.window.knows(digest, transaction, now_ms))
            keep.append(is_new)
            if is_new and digest is not None:
                here.add(digest)
        return keep

    def learn(self, batch: StoredBatch) -> None:
        """A batch that lies in the log: all its ids are new. One that cannot be opened has none. Parked records count
        with their mate, as on the leader, and not again when they are released."""
        header = batch.header
        if self._open is not None:
            note, digests = self._open
            counts = note.follows(header)
            self._open = None if counts is not None else self._open
            if counts:
                self._add(digests, note.note.producer_id, header.next_offset, batch.now_ms)
                if note.note.kind is NoteKind.RELEASE:
                    return
        if header.is_note:
            self._meet_note(batch)
            return
        if header.is_control:
            marker = batch.marker()
            if marker is not None:
                self.ended(header.producer_id, header.next_offset, commit=marker.commit, now_ms=batch.now_ms)
            return
        digests = _digests_in(batch) if batch.ids is None else batch.ids
        self._add(digests, _transaction_of(header), header.next_offset, batch.now_ms)

    def _meet_note(self, batch: StoredBatch) -> None:
        note = read_note(*batch.stored())
        if note is None or not note.mates:
            return
        digests = batch.ids
        if digests is None:
            (found,) = scanned_note(note, (ID_SCAN,))
            digests = [digest for digest in found if digest is not None]
        self._open = OpenNote(note, batch.header), digests
        note.records = b""

    def covers(self, end_offset: int) -> int:
        """Up to where all is known, if the log ends at `end_offset`."""
        return end_offset if self._open is None else self._open[0].offset

    def ended(self, producer_id: int, next_offset: int, *, commit: bool, now_ms: int) -> None:
        """A transaction has ended, by a marker that lies before `next_offset`."""
        counted = self.window.end(producer_id, commit=commit, now_ms=now_ms)
        if counted is not None:
            kind = Kind.COUNTED if commit else Kind.ABORTED
            self.journal.note(Frame(kind, next_offset, now_ms, producer_id, counted))

    def _add(self, digests: list[bytes], transaction: int, next_offset: int, now_ms: int) -> None:
        if digests:
            self.window.add(digests, transaction, now_ms)
            kind = Kind.COUNTED if transaction == NO_TRANSACTION else Kind.PENDING
            self.journal.note(Frame(kind, next_offset, now_ms, transaction, digests))


class SeenIds(DerivedState):
    """Deduplication as derived state (derived.py); `dedup` is None on a topic that does not ask for it."""

    __slots__ = ("_producers", "dedup", "duplicates_dropped", "hears", "ids_forgotten")

    asks_others = True

    def __init__(self, producers: ProducerStates) -> None:
        self._producers = producers
        self.dedup: Dedup | None = None
        self.hears = 0
        self.duplicates_dropped = 0  # records that were acknowledged and not stored
        self.ids_forgotten = 0  # ids that left before their time for want of memory

    @property
    def scans(self) -> tuple[Scan, ...]:
        """What it wants to know of batches before they are written."""
        return () if self.dedup is None else _SCANS

    def ids_in(self, batches: Sequence[OpenBatch]) -> list[list[bytes]] | None:
        """The ids in each of these batches, if it wants to know them."""
        if self.dedup is None:
            return None
        return [[digest for digest in batch.scanned[0] if digest is not None] for batch in batches]

    def load(self, log: LogOnDisk) -> int:
        """The files, and for the rest the log itself, whose ids count from now."""
        self._use(None)
        if not log.config.dedup_window_ms:
            return log.end_offset
        if log.checkpoint.restart_at is not None:  # what is there is of the log before
            self._use(_begun(log))
            return log.end_offset
        dedup, known_to = _loaded(log, self._producers.first_unstable())
        self._use(dedup)
        return max(log.segments[0].base_offset, known_to)  # ids outlive their records

    def appended(self, batch: StoredBatch) -> None:
        dedup = self.dedup
        if dedup is None:
            return
        forgotten = dedup.window.forgotten
        dedup.learn(batch)
        if batch.ids is not None:
            self.ids_forgotten += dedup.window.forgotten - forgotten

    def restarted(self, log: LogOnDisk) -> None:
        if self.dedup is not None:
            self._use(_begun(log))

    def reconfigured(self, log: LogOnDisk) -> None:
        config = log.config
        if self.dedup is None:
            if config.dedup_window_ms:
                self._use(_begun(log))
        elif config.dedup_window_ms:
            self.dedup.window.limit(config.dedup_window_ms, config.dedup_max_bytes)
        else:
            self.dedup.journal.remove()
            self._use(None)

    def _use(self, dedup: Dedup | None) -> None:
        self.dedup = dedup
        self.hears = 0 if dedup is None else PLAIN

    def snapshot(self, moment: Moment) -> Store | None:
        if self.dedup is None or moment.occasion not in (Occasion.SYNC, Occasion.CHECKPOINT):
            return None
        end_offset, now_ms = self.dedup.covers(moment.end_offset), moment.now_ms
        first_open = self._producers.first_unstable()
        journal = self.dedup.journal
        write = partial(
            journal.write,
            journal.take(end_offset, now_ms),
            end_offset,
            now_ms=now_ms,
            window_ms=self.dedup.window.window_ms,
            needed_from=end_offset if first_open is None else first_open,
        )
        return Store(write, durable=False)


def _begun(log: LogOnDisk) -> Dedup:
    """For a topic that asks for it from now on, or a log that starts over: nothing has been seen yet."""
    journal = IdJournal(log.folder.disk, log.folder.directory, log.end_offset)
    journal.remove()
    return Dedup(IdWindow(log.config.dedup_window_ms, log.config.dedup_max_bytes), journal)


def _loaded(log: LogOnDisk, first_open: int | None) -> tuple[Dedup, int]:
    """What the files say, and up to which offset. The first open transaction starts at `first_open`."""
    end, now_ms, config = log.end_offset, log.now_ms, log.config
    window = IdWindow(config.dedup_window_ms, config.dedup_max_bytes)
    journal = IdJournal(log.folder.disk, log.folder.directory)
    for frame in journal.read(end):
        if frame.kind == Kind.PENDING:
            window.add(frame.digests, frame.producer_id, frame.time_ms)
        elif frame.kind in (Kind.COUNTED, Kind.ABORTED):
            window.end(frame.producer_id, commit=False, now_ms=frame.time_ms)
            window.add(frame.digests, NO_TRANSACTION, frame.time_ms)
    window.expire(now_ms)
    covered = journal.covered
    if journal.is_new:
        first = log.segments[0].base_offset
        within = timestamps.find_time(log.segments, now_ms - config.dedup_window_ms, first, end)
        covered = min(end if within is None else within[0], end if first_open is None else first_open)
        covered = _pair_start(log, covered)
    return Dedup(window, journal), covered


def _pair_start(log: LogOnDisk, offset: int) -> int:
    """Where the batch begins that has this offset, or the note before it: notes have no time, and this one may have the
    ids of its mate's records."""
    first = log.segments[0].base_offset
    if not first < offset < log.end_offset:
        return offset
    segment = log.segments[segment_at(log.segments, offset)]
    position = segment.locate(offset, wait=True)
    found = islice(segment.headers(position, segment.size, wait=True), 1)
    start = min([offset, *(header.base_offset for _, header in found)])
    is_note = start > first and any(batch.header.is_note for batch in log.batches(start - 1, start))
    return start - 1 if is_note else start


def _digests_in(batch: StoredBatch) -> list[bytes]:
    try:
        _, section = wire_records.open_batch(*batch.stored())
        (values,) = wire_records.scan_headers(section, batch.header.record_count, (ID_SCAN.header,))
    except Malformed:
        return []
    return [digest for digest in _digests(values) if digest is not None]


def _transaction_of(header: BatchHeader) -> int:
    return header.producer_id if header.is_transactional else NO_TRANSACTION


def _digest(value: bytes | None) -> bytes | None:
    """An empty id is none."""
    return blake2b(value, digest_size=DIGEST_BYTES).digest() if value else None
