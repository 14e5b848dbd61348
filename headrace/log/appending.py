"""Appending in general: whatever tail.py does not take as usual, markers, and what a follower gets from its leader.

A part of a log, called by PartitionLog. Everything is checked before the one write, and no state changes before that
write has succeeded; then the derived states that hear of such a batch (derived.py) are told of it.
"""

from __future__ import annotations

from itertools import chain, repeat

from headrace.log.appended import Appended
from headrace.log.dedup import Sifted
from headrace.log.derived import PRODUCER, StoredBatch, news_in
from headrace.log.failing import lost_count, refusal, write_failed
from headrace.log.headroom import Headroom
from headrace.log.opening import Found, Keeps, Opened, Wanted, followed, opened, rewritten, wanted
from headrace.log.parking import paired, park
from headrace.log.rolling import Rolling
from headrace.log.segment import Segment
from headrace.log.states import LogStates
from headrace.log.tail import LogTail
from headrace.wire.batches import (
    BatchHeader,
    crc_ok,
    read_header,
    split_produced,
    stamp,
    stamp_append_time,
    walk,
)
from headrace.wire.end_markers import EndMarker, encode_marker
from headrace.wire.errors import ErrorCode, KafkaError


class Appending:
    __slots__ = ("_headroom", "_name", "_rolling", "_states", "_tail", "_wanted")

    def __init__(
        self, tail: LogTail, states: LogStates, rolling: Rolling, headroom: Headroom | None, name: str
    ) -> None:
        self._tail = tail
        self._states = states
        self._rolling = rolling
        self._headroom = headroom
        self._name = name
        self._wanted: Wanted | None = None

    def append(
        self,
        records: memoryview,
        leader_epoch: int,
        now_ms: int,
        internal: bool,
        transactional: bool,
        prepared: Opened | None,
        due_ms: int,
    ) -> Appended:
        """What a producer sent, as PartitionLog.append says."""
        tail = self._tail
        if tail.offline is not None:
            raise refusal(tail)
        append_time_ms = now_ms if tail.config.log_append_time else -1
        if internal:
            found = split_produced(records)
            repeated = self._repeated(found)
            return repeated or self._put(records, found, leader_epoch, append_time_ms, now_ms, None)
        run = opened(records, self._wants(transactional), now_ms, prepared)
        repeated = self._repeated(run.found)
        if repeated is not None:
            return repeated
        records, found, sifted, parked = run.records, run.found, None, None
        if run.wanted.looks_inside:
            dedup = self._states.seen_ids.dedup
            keeps: Keeps = [None] * len(run.batches)
            if dedup is not None:
                sifted = dedup.sift(run.batches, now_ms)
                keeps = sifted.keeps
            if run.wanted.delayed:
                parked = park(run.batches, keeps, self._states.scheduled.schedule, due_ms)
            records, found = rewritten(run, keeps if parked is None else parked.keeps)
            if parked is not None:
                records, found = paired(parked.note, records, found, append_time_ms)
        self._take_room(len(records))
        return self._put(records, found, leader_epoch, append_time_ms, now_ms, sifted)

    def append_notes(self, records: memoryview, leader_epoch: int, now_ms: int) -> Appended:
        """Write notes, each with its mates behind it, as they are."""
        tail = self._tail
        if tail.offline is not None:
            raise refusal(tail)
        size = len(records)
        self._take_room(size)
        return self._put(records, list(walk(records)), leader_epoch, -1, now_ms, None)

    def _wants(self, transactional: bool) -> Wanted:
        """What the topic has done with the batches of its clients; as it was the last time, nearly always."""
        known, config, scans = self._wanted, self._tail.config, self._states.scans
        if known is None or known.config is not config or known.scans != scans or known.transactional != transactional:
            known = self._wanted = wanted(config, scans, transactional=transactional)
        return known

    def _put(
        self,
        records: memoryview,
        found: Found,
        leader_epoch: int,
        append_time_ms: int,
        now_ms: int,
        sifted: Sifted | None,
    ) -> Appended:
        """Stamp and write batches that may be written. A note is not counted among what was asked to be appended."""
        tail = self._tail
        notes = int(found[0][1].is_note)
        with tail.lock:
            base_offset = offset = tail.end_offset
            for at, header in found:
                stamp(records, at, offset, header.length, leader_epoch)
                if append_time_ms >= 0 and not header.is_note:
                    stamp_append_time(records, at, header, append_time_ms)
                offset += header.last_offset_delta + 1
            segment = self._write(records, offset, now_ms)
            try:
                offset = base_offset
                fresh = repeat(None) if sifted is None else chain(repeat([], notes), sifted.fresh)
                for (at, header), ids in zip(found, fresh, strict=False):
                    following = offset + header.last_offset_delta + 1
                    timestamp = header.max_timestamp if append_time_ms < 0 or header.is_note else append_time_ms
                    segment.note(offset, following, header.size, timestamp)
                    news = news_in(header, leader_epoch > tail.epochs.latest)
                    if news == PRODUCER and not tail.hears_all:
                        tail.producers.remember(header, offset, append_time_ms, now_ms)
                    elif news or tail.hears_all:
                        stored = StoredBatch(read_header(records, at), now_ms, records, at, ids)
                        self._tell(news, stored)
                    offset = following
                visible_bytes = len(records)
                if sifted is not None or notes:
                    visible_bytes = _visible_bytes(found)
                if sifted is not None:
                    self._states.seen_ids.duplicates_dropped += sifted.dropped
                first = base_offset + notes if notes < len(found) else base_offset
                before = base_offset if notes else -1
                return Appended(first, offset - 1, append_time_ms, tail.start_offset, False, visible_bytes, before)
            except MemoryError as error:
                lost_count(tail, error)

    def _repeated(self, found: Found) -> Appended | None:
        """What is answered to a retry of batches that are here already; else None. KafkaError if the producer of one
        may not write it now."""
        tail = self._tail
        before: BatchHeader | None = None
        for _, header in found:
            if header.producer_id >= 0:
                if before is not None and before.producer_id == header.producer_id:
                    tail.producers.check_next(before, header)
                elif (written := tail.producers.check(header)) is not None:
                    return Appended(
                        written.base_offset, written.last_offset, written.append_time_ms, tail.start_offset, True, 0
                    )
                before = header
        return None

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        leader_epoch: int,
        *,
        strict: bool,
        now_ms: int,
    ) -> Appended:
        """Write the end of a transaction. One that is here already is not written again, and counts as `duplicate`."""
        tail = self._tail
        if tail.offline is not None:
            raise refusal(tail)
        if not tail.producers.check_end(producer_id, producer_epoch, coordinator_epoch, strict=strict):
            last = tail.end_offset - 1  # it is one of these
            return Appended(last, last, -1, tail.start_offset, True, 0)
        marker = EndMarker(commit, coordinator_epoch)
        records = memoryview(encode_marker(marker, producer_id, producer_epoch, now_ms))
        with tail.lock:
            offset = tail.end_offset
            stamp(records, 0, offset, read_header(records).length, leader_epoch)
            segment = self._write(records, offset + 1, now_ms)
            try:
                segment.note(offset, offset + 1, len(records), now_ms)
                stored = StoredBatch(read_header(records), now_ms, records, 0)
                self._tell(news_in(stored.header, leader_epoch > tail.epochs.latest), stored)
                return Appended(offset, offset, -1, tail.start_offset, False, len(records))
            except MemoryError as error:
                lost_count(tail, error)

    def scanned(self, records: memoryview) -> Opened | None:
        """As PartitionLog.scanned says."""
        return followed(records, self._wants(transactional=False)) if self._states.scans else None

    def append_as_follower(
        self, records: memoryview, now_ms: int | None, scanned: Opened | None, *, takes_room: bool
    ) -> int:
        """As PartitionLog.append_as_follower says."""
        tail = self._tail
        if tail.offline is not None:
            raise refusal(tail)
        now_ms = tail.now_ms if now_ms is None else now_ms
        if scanned is not None:
            records = scanned.records
        known = None if scanned is None else self._states.seen_ids.ids_in(scanned.batches)
        found = list(walk(records))
        expected = tail.end_offset
        for at, header in found:
            if not crc_ok(records, at, header):
                raise KafkaError(ErrorCode.corrupt_message, f"{self._name}: a batch does not match its CRC")
            if header.base_offset < expected:
                raise KafkaError(
                    ErrorCode.invalid_record,
                    f"{self._name}: a batch starts at {header.base_offset}, before the end at {expected}",
                )
            expected = header.next_offset
        if not found:
            return 0
        total = found[-1][0] + found[-1][1].size
        if takes_room:
            self._take_room(total)
        with tail.lock:
            segment = self._write(records[:total], expected, now_ms)
            try:
                for (at, header), ids in zip(found, repeat(None) if known is None else known, strict=False):
                    segment.note(header.base_offset, header.next_offset, header.size, header.max_timestamp)
                    news = news_in(header, header.leader_epoch > tail.epochs.latest)
                    if news == PRODUCER and not tail.hears_all:
                        tail.producers.remember_stored(header, now_ms)
                    elif news or tail.hears_all:
                        self._tell(news, StoredBatch(header, now_ms, records, at, ids))
            except MemoryError as error:
                lost_count(tail, error)
        if not self._states.thinned.known:
            return total
        return _visible_bytes(found)

    def _tell(self, news: int, stored: StoredBatch) -> None:
        """Tell the states of a batch. Of a note's mates one has to hear as well, and of what comes in their place: no
        append is usual until then."""
        self._states.appended(news, stored)
        self._tail.hears_all = self._states.hears_all

    def _take_room(self, size: int) -> None:
        """What is left when the disk is nearly full is for more important things than records."""
        if self._headroom is not None:
            self._headroom.take(size)

    def _write(self, records: memoryview, end_offset: int, now_ms: int) -> Segment:
        """Put stamped batches into the active segment, which is returned; the log then ends at `end_offset`."""
        tail = self._tail
        segment = self._rolling.room_for(len(records), end_offset, now_ms)
        try:
            tail.write(segment, records)
        except (OSError, MemoryError) as error:
            raise write_failed(tail, error) from error
        tail.end_offset = end_offset
        return segment


def _visible_bytes(found: Found) -> int:
    """Of these batches, what consumers are given."""
    return sum(header.size for _, header in found if header.record_count and not header.is_note)
