"""Deduplication by message id: a record whose `headrace.id` header was seen lately is acknowledged and not stored.

Only on topics with headrace.dedup.window.ms; there every batch is opened. Called by partition_log.py: `sift` before the
write, which changes nothing, `stored` after it. A batch that loses records is written anew with its producer id,
sequences, offsets and codec, empty if it loses all: so retries, replicas and a restart find what the producer sent, and
an acknowledged duplicate is committed when its first is. What a follower takes and what recovery finds is `learn`ed.

The ids are in id_window.py, on disk in id_journal.py. Time is this broker's when the record was stored, or when its
transaction was committed; what a start had to read from the log counts from then. A duplicate does not count anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from headrace.log import timestamps
from headrace.log.id_journal import Frame, IdJournal, Kind
from headrace.log.id_window import DIGEST_BYTES, NO_TRANSACTION, IdWindow
from headrace.log.reading import segment_at
from headrace.log.segment import Segment
from headrace.model.topic_config import TopicConfig
from headrace.wire import records as wire_records
from headrace.wire.batches import BatchHeader, Buffer, walk
from headrace.wire.end_markers import read_marker
from headrace.wire.errors import ErrorCode, KafkaError, Malformed
from headrace.world.disk import Disk

ID_HEADER = b"headrace.id"

Found = list[tuple[int, BatchHeader]]


class Sifted(NamedTuple):
    """What is to be written of a produced run of batches."""

    records: memoryview
    found: Found
    fresh: list[list[bytes]]
    """Of each batch the ids that come with it."""
    dropped: int


class Dedup:
    def __init__(self, window: IdWindow, journal: IdJournal) -> None:
        self.window = window
        self.journal = journal

    def sift(self, records: memoryview, found: Found, now_ms: int) -> Sifted:
        """Leave out records whose ids are known. KafkaError if a batch cannot be opened."""
        here: set[bytes] = set()
        fresh: list[list[bytes]] = []
        batches: list[Buffer] = []
        dropped = 0
        for at, header in found:
            try:
                _, section = wire_records.open_batch(records, at)
                ids = wire_records.scan_header(section, header.record_count, ID_HEADER)
            except Malformed as error:
                raise KafkaError(ErrorCode.corrupt_message, f"a record batch cannot be opened: {error}") from error
            digests = [_digest(value) for value in ids]
            keep = self._keep(digests, _transaction_of(header), here, now_ms)
            fresh.append([digest for digest, kept in zip(digests, keep, strict=True) if kept and digest is not None])
            if all(keep):
                batches.append(records[at : at + header.size])
            elif any(keep):
                batches.append(wire_records.filtered_batch(header, section, keep))
            else:
                batches.append(wire_records.emptied_batch(header))
            dropped += len(keep) - sum(keep)
        if not dropped:
            return Sifted(records, found, fresh, 0)
        rewritten = memoryview(bytearray().join(batches))
        return Sifted(rewritten, list(walk(rewritten)), fresh, dropped)

    def _keep(self, digests: Sequence[bytes | None], transaction: int, here: set[bytes], now_ms: int) -> list[bool]:
        keep: list[bool] = []
        for digest in digests:
            is_new = digest is None or not (digest in here or self.window.knows(digest, transaction, now_ms))
            keep.append(is_new)
            if is_new and digest is not None:
                here.add(digest)
        return keep

    def stored(self, sifted: Sifted, base_offset: int, now_ms: int) -> int:
        """What `sift` gave is in the log. How many ids had to leave before their time."""
        before = self.window.forgotten
        next_offset = base_offset
        for (_, header), digests in zip(sifted.found, sifted.fresh, strict=True):
            next_offset += header.last_offset_delta + 1
            self._add(digests, _transaction_of(header), next_offset, now_ms)
        return self.window.forgotten - before

    def learn(self, buffer: Buffer, at: int, header: BatchHeader, now_ms: int) -> None:
        """A batch that lies in the log with its offset: all its ids are new. One that cannot be opened has none."""
        if header.is_control:
            marker = read_marker(buffer, at)
            if marker is not None:
                self.ended(header.producer_id, header.next_offset, commit=marker.commit, now_ms=now_ms)
            return
        try:
            _, section = wire_records.open_batch(buffer, at)
            ids = wire_records.scan_header(section, header.record_count, ID_HEADER)
        except Malformed:
            return
        digests = [digest for digest in map(_digest, ids) if digest is not None]
        self._add(digests, _transaction_of(header), header.next_offset, now_ms)

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

    def take(self, end_offset: int, now_ms: int, first_open: int | None) -> Unwritten:
        """What the files lack; called with the log's lock held."""
        needed_from = end_offset if first_open is None else first_open
        return Unwritten(self, self.journal.take(end_offset, now_ms), end_offset, now_ms, needed_from)


class Unwritten(NamedTuple):
    dedup: Dedup
    frames: bytes
    end_offset: int
    now_ms: int
    needed_from: int

    def write(self) -> None:
        """Blocks."""
        self.dedup.journal.write(
            self.frames,
            self.end_offset,
            now_ms=self.now_ms,
            window_ms=self.dedup.window.window_ms,
            needed_from=self.needed_from,
        )


def begun(disk: Disk, directory: Path, end_offset: int, config: TopicConfig) -> Dedup:
    """For a topic that asks for it from now on: nothing has been seen yet."""
    journal = IdJournal(disk, directory, end_offset)
    journal.remove()
    return Dedup(IdWindow(config.dedup_window_ms, config.dedup_max_bytes), journal)


def loaded(
    disk: Disk,
    segments: Sequence[Segment],
    offsets: tuple[int, int],
    first_open: int | None,
    config: TopicConfig,
    now_ms: int,
) -> Dedup:
    """What the files say of a log with these offsets (start, end), and for the rest the log itself; blocks. The first
    open transaction starts at `first_open`."""
    start, end = offsets
    window = IdWindow(config.dedup_window_ms, config.dedup_max_bytes)
    journal = IdJournal(disk, segments[0].directory)
    for frame in journal.read(end):
        if frame.kind == Kind.PENDING:
            window.add(frame.digests, frame.producer_id, frame.time_ms)
        elif frame.kind in (Kind.COUNTED, Kind.ABORTED):
            window.end(frame.producer_id, commit=False, now_ms=frame.time_ms)
            window.add(frame.digests, NO_TRANSACTION, frame.time_ms)
    covered = journal.covered
    if journal.is_new:
        within = timestamps.find_time(segments, now_ms - config.dedup_window_ms, start, end)
        covered = min(end if within is None else within[0], end if first_open is None else first_open)
    dedup = Dedup(window, journal)
    _learn_from(segments, max(start, covered), dedup, now_ms)
    window.expire(now_ms)
    return dedup


def _learn_from(segments: Sequence[Segment], offset: int, dedup: Dedup, now_ms: int) -> None:
    for segment in segments[segment_at(segments, offset) :]:
        for position, header in segment.headers(segment.locate(offset, wait=True), segment.size, wait=True):
            dedup.learn(segment.peek(position, header.size, wait=True), 0, header, now_ms)


def _transaction_of(header: BatchHeader) -> int:
    return header.producer_id if header.is_transactional else NO_TRANSACTION


def _digest(value: bytes | None) -> bytes | None:
    """An empty id is none."""
    return blake2b(value, digest_size=DIGEST_BYTES).digest() if value else None
