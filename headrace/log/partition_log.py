"""One partition's log: append at the end, read anywhere.

The hot part of the room. Append and read run on the event loop for every request: no lookup on disk, one write per
append, and no state changes before that write has succeeded. Called by replicas and by handlers that ask for offsets.
What it is built on: tail.py (what every append touches, with a shorter way for the usual one), durability.py (the
folder, its locks, syncing) and trimming.py (dropping from either end).
"""

from __future__ import annotations

from headrace.log import dedup, timestamps
from headrace.log.admission import check_client_batch
from headrace.log.appended import Appended
from headrace.log.producer_state import ProducerFacts
from headrace.log.reading import EMPTY, ReadBounds, Slice, slice_of
from headrace.log.recompression import recompressed
from headrace.log.segment import Segment
from headrace.log.trimming import TrimmableLog
from headrace.log.visible import is_thinned
from headrace.model.topic_config import TopicConfig
from headrace.wire.batches import BatchHeader, crc_ok, read_header, split_produced, stamp, stamp_append_time, walk
from headrace.wire.end_markers import EndMarker, encode_marker, read_marker
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.disk import File


class PartitionLog(TrimmableLog):
    __slots__ = ()

    # -- append -------------------------------------------------------------------------------------------------------

    def append(
        self,
        records: memoryview,
        leader_epoch: int,
        *,
        now_ms: int,
        internal: bool = False,
        transactional: bool = False,
    ) -> Appended:
        """Take what a producer sent: check, stamp in place, one write.

        `records` is writable and holds one or more whole batches. `internal` is for the broker's own batches, which
        need no checks meant for clients. `transactional` says that the coordinator knows of this partition, so that a
        marker will come. Raises KafkaError, and then nothing has changed.
        """
        if not internal and not transactional:
            appended = self.append_usual(records, leader_epoch, now_ms)
            if appended is not None:
                return appended
        if self.offline is not None:
            raise self._refusal()
        found = split_produced(records)
        config = self.config
        append_time_ms = now_ms if config.log_append_time else -1
        before: BatchHeader | None = None
        for at, header in found:
            if not internal:
                check_client_batch(records, at, header, config, now_ms, transactional=transactional)
            if header.producer_id >= 0:
                if before is not None and before.producer_id == header.producer_id:
                    self.producers.check_next(before, header)
                elif (written := self.producers.check(header)) is not None:
                    return Appended(
                        written.base_offset, written.last_offset, written.append_time_ms, self.start_offset, True, 0
                    )
                before = header
        sifted: dedup.Sifted | None = None
        if self.dedup is not None and not internal:
            sifted = self.dedup.sift(records, found, now_ms)
            records, found = sifted.records, sifted.found
        if config.codec is not None and not internal:
            records, found = recompressed(records, found, config.codec, config.max_message_bytes, config.codec_level)
        if not internal:
            self._take_room(len(records))
        with self._lock:
            base_offset = offset = self.end_offset
            for at, header in found:
                stamp(records, at, offset, header.length, leader_epoch)
                if append_time_ms >= 0:
                    stamp_append_time(records, at, header, append_time_ms)
                offset += header.last_offset_delta + 1
            segment = self._room_for(len(records), offset, now_ms)
            self._write(segment, records)
            self.end_offset = offset
            offset = base_offset
            for _, header in found:
                following = offset + header.last_offset_delta + 1
                timestamp = header.max_timestamp if append_time_ms < 0 else append_time_ms
                segment.note(offset, following, header.length + 12, timestamp)
                if header.producer_id >= 0:
                    self.producers.remember(header, offset, append_time_ms, now_ms)
                offset = following
            visible_bytes = len(records)
            if sifted is not None and self.dedup is not None:
                visible_bytes = sum(header.size for _, header in found if header.record_count)
                self.thinned = self.thinned or sifted.dropped > 0
                self.duplicates_dropped += sifted.dropped
                self.ids_forgotten += self.dedup.stored(sifted, base_offset, now_ms)
            if leader_epoch > self.epochs.latest:
                self.epochs.assign(leader_epoch, base_offset)
            return Appended(base_offset, offset - 1, append_time_ms, self.start_offset, False, visible_bytes)

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
        if self.offline is not None:
            raise self._refusal()
        if not self.producers.check_end(producer_id, producer_epoch, coordinator_epoch, strict=strict):
            last = self.end_offset - 1  # it is one of these
            return Appended(last, last, -1, self.start_offset, True, 0)
        marker = EndMarker(commit, coordinator_epoch)
        records = memoryview(encode_marker(marker, producer_id, producer_epoch, now_ms))
        with self._lock:
            offset = self.end_offset
            stamp(records, 0, offset, read_header(records).length, leader_epoch)
            segment = self._room_for(len(records), offset + 1, now_ms)
            self._write(segment, records)
            self.end_offset = offset + 1
            segment.note(offset, offset + 1, len(records), now_ms)
            self._note_end(read_header(records), marker, now_ms)
            if leader_epoch > self.epochs.latest:
                self.epochs.assign(leader_epoch, offset)
            return Appended(offset, offset, -1, self.start_offset, False, len(records))

    def _note_end(self, header: BatchHeader, marker: EndMarker, now_ms: int) -> None:
        ended = self.producers.remember_end(header, marker, now_ms)
        if ended is not None and not marker.commit:
            self.aborted_txns.add(ended)
        if self.dedup is not None:
            self.dedup.ended(header.producer_id, header.next_offset, commit=marker.commit, now_ms=now_ms)

    def append_as_follower(self, records: memoryview, now_ms: int | None = None) -> int:
        """Take batches as another log has them, with their offsets and epochs. A batch that is cut short is left. How
        many bytes there are for consumers in them."""
        if self.offline is not None:
            raise self._refusal()
        now_ms = self._now_ms if now_ms is None else now_ms
        found = list(walk(records))
        expected = self.end_offset
        for at, header in found:
            if not crc_ok(records, at, header):
                raise KafkaError(ErrorCode.corrupt_message, f"{self.topic_partition}: a batch does not match its CRC")
            if header.base_offset < expected:
                raise KafkaError(
                    ErrorCode.invalid_record,
                    f"{self.topic_partition}: a batch starts at {header.base_offset}, before the end at {expected}",
                )
            expected = header.next_offset
        if not found:
            return 0
        total = found[-1][0] + found[-1][1].size
        if not self.internal:
            self._take_room(total)
        with self._lock:
            segment = self._room_for(total, expected, now_ms)
            self._write(segment, records[:total])
            self.end_offset = expected
            for at, header in found:
                segment.note(header.base_offset, header.next_offset, header.size, header.max_timestamp)
                self.epochs.assign(header.leader_epoch, header.base_offset)
                if header.is_control:
                    marker = read_marker(records, at)
                    if marker is not None:
                        self._note_end(header, marker, now_ms)
                    continue
                if header.producer_id >= 0:
                    self.producers.remember_stored(header, now_ms)
                self.thinned = self.thinned or is_thinned(header)
                if self.dedup is not None:
                    self.dedup.learn(records, at, header, now_ms)
        return sum(header.size for _, header in found if header.record_count)

    def _take_room(self, size: int) -> None:
        """What is left when the disk is nearly full is for more important things than records."""
        if self._shelf.headroom is not None:
            self._shelf.headroom.take(size)

    def _room_for(self, size: int, next_offset: int, now_ms: int) -> Segment:
        """The active segment, or a new one if this write would make it too large or too old."""
        segment = self.segments[-1]
        self._now_ms = now_ms
        if segment.size and self._outgrown(segment, size, next_offset, now_ms):
            try:
                segment = self._roll(now_ms)
            except OSError as error:
                raise self._write_failed(error) from error
        if not segment.active:
            segment.activate(self.end_offset)
        if not segment.size:
            segment.first_append_ms = now_ms
        return segment

    def _cut_back(self, segment: Segment, file: File) -> None:
        """Drop what a failed write has left, durably: if a new segment is begun before the next write, nobody looks at
        this one's end again."""
        file.truncate(segment.size)
        try:
            file.sync()
        except OSError as error:
            self.sync_failed(segment, error)

    def reconfigure(self, config: TopicConfig) -> None:
        super().reconfigure(config)
        with self._lock:
            if not config.dedup_window_ms and self.dedup is not None:
                self.dedup.journal.remove()
                self.dedup = None
            elif config.dedup_window_ms and self.dedup is None:
                self.dedup = dedup.begun(self._shelf.disk, self.directory, self.end_offset, config)
            elif self.dedup is not None:
                self.dedup.window.limit(config.dedup_window_ms, config.dedup_max_bytes)

    # -- transactions -------------------------------------------------------------------------------------------------

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        return producer_id in self.producers.open and self.producers.producers[producer_id].epoch == epoch

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of a transaction that is open, or whose marker is not committed; None if there is none."""
        producers = self.producers
        if high_watermark == self.committed_offset and not producers.open and not producers.ended:
            return None  # as nearly always, and asked twice for every fetch
        self.settle(high_watermark)
        return producers.first_unstable()

    def settle(self, high_watermark: int) -> None:
        """Everything before `high_watermark` is committed."""
        self.committed_offset = high_watermark
        self.producers.settle(high_watermark)

    def decided_below(self) -> int:
        """Everything before this offset is committed as far as this log has been told, every transaction that has a
        record there has ended, and the marker is committed too."""
        with self._lock:
            ends = [self.end_offset, self.committed_offset, self.producers.first_unstable()]
            return min(end for end in ends if end is not None)

    def aborted(self, first_offset: int, upto_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that a reader of these offsets must skip."""
        return self.aborted_txns.between(first_offset, upto_offset)

    def producers_described(self) -> list[ProducerFacts]:
        return self.producers.described()

    # -- read ---------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, below: int, *, at_least_one: bool, for_consumer: bool = False) -> Slice:
        """Whole batches from `offset` on, before `below`; as they are stored, or as a consumer is given them. Never
        waits for the disk; loading the slice may."""
        if self.offline is not None:
            raise self._refusal()
        end_offset = self.end_offset
        if not self.start_offset <= offset <= end_offset:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"{self.topic_partition} has offsets {self.start_offset} to {end_offset}, not {offset}",
            )
        if offset >= below:
            return EMPTY
        thinned = for_consumer and self.thinned
        if offset == self._newest_offset and below == end_offset and not thinned:
            self._followed = True
            newest = self._newest
            if newest is not None and len(newest) <= max_bytes:
                return Slice(len(newest), self.segments[-1], self._newest_position, kept=newest)
        return slice_of(self.segments, ReadBounds(offset, max_bytes, below, below < end_offset, at_least_one, thinned))

    def find_time(self, timestamp_ms: int, below: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record as late as this; blocks."""
        return timestamps.find_time(self.segments, timestamp_ms, self.start_offset, below)

    def find_max_timestamp(self, below: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the latest record; blocks."""
        return timestamps.find_max(self.segments, self.start_offset, below)
