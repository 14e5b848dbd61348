# cython: language_level=3, auto_pickle=False
"""The end of a log, compiled: the twin of _tail_py.py, where every attribute is explained, and the usual append.

A batch is usual if a client sent it alone, it is whole, its records carry the client's times, and it comes from no
producer id or is the very next of an idempotent one; its records, where they are not compressed, are as they should be
(wire/_record_walk.pxi); the topic leaves batches closed (`TopicConfig.batches_stay_closed`), or opens them for delay
headers only and this one can be seen to have none; and the segment has room for it. That is nearly every batch there is. Batches are laid out as wire/batches.py says.

The usual append decides whether it applies, never what is allowed: it declines every batch that admission.py would
refuse, and more, and PartitionLog.append refuses it in its own words. Tests hold both against that.
"""

from cpython cimport array
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

import threading

from headrace.log import failing
from headrace.log.appended import Appended
from headrace.wire.batches import read_header
from headrace.wire.checksum import crc32c

include "../wire/_record_walk.pxi"

cdef extern from *:
    bint add_overflows "__builtin_add_overflow"(int64_t, int64_t, int64_t *) noexcept nogil

cdef extern from "<endian.h>" nogil:
    uint32_t be32toh(uint32_t)
    uint32_t htobe32(uint32_t)
    uint64_t be64toh(uint64_t)
    uint64_t htobe64(uint64_t)

cdef extern from "<string.h>" nogil:
    void *memmem(const void *, size_t, const void *, size_t)

cdef enum:
    RECENT_BATCHES = 256
    KEPT_BYTES = 4096
    PREFIX_BYTES = 12
    HEADER_BYTES = 61
    MAGIC = 2
    LAST_CODEC = 4

cdef int64_t INACTIVE = 1LL << 62
cdef int64_t FOR_EVER_MS = 1LL << 61  # added to any time there is, it is still a time


cdef bytes DELAY_PREFIX = b"headrace."
cdef bytes DELAY_INITIALS = b"cdm"  # of what follows in the names of all delay headers (model/delays.py)


cdef bint may_be_delayed(const uint8_t *batch, int64_t size) except -1:
    """Whether a record of this batch may have a delay header: its name stands in the bytes, unless they are
    compressed. Fields before the records never are such a name."""
    cdef const uint8_t *at = batch
    cdef const uint8_t *end = batch + size
    cdef const char *prefix = DELAY_PREFIX
    cdef const char *initials = DELAY_INITIALS
    cdef int64_t length = len(DELAY_PREFIX)
    if size < HEADER_BYTES or batch[22] != 0:
        return True
    while True:
        at = <const uint8_t *> memmem(at, end - at, prefix, length)
        if at is NULL:
            return False
        at += length
        if at < end and (at[0] == initials[0] or at[0] == initials[1] or at[0] == initials[2]):
            return True


cdef inline int16_t int16_at(const uint8_t *at) noexcept:
    return <int16_t> (at[0] << 8 | at[1])


cdef inline int32_t int32_at(const uint8_t *at) noexcept:
    cdef uint32_t value
    memcpy(&value, at, 4)
    return <int32_t> be32toh(value)


cdef inline int64_t int64_at(const uint8_t *at) noexcept:
    cdef uint64_t value
    memcpy(&value, at, 8)
    return <int64_t> be64toh(value)


cdef inline void stamp(uint8_t *batch, int64_t base_offset, int32_t leader_epoch) noexcept:
    cdef uint64_t offset = htobe64(<uint64_t> base_offset)
    cdef uint32_t epoch = htobe32(<uint32_t> leader_epoch)
    memcpy(batch, &offset, 8)
    memcpy(batch + 12, &epoch, 4)


cdef inline bint begins_as(uint8_t codec, const uint8_t *at, const uint8_t *end) noexcept:
    """As wire/compression.py says of gzip, snappy, lz4 and zstd."""
    if end - at < 4:
        return codec == 2 and end > at
    cdef uint32_t first = <uint32_t> int32_at(at)
    if codec == 1:
        return first >> 8 == 0x1F8B08
    return codec == 2 or first == <uint32_t> (0x04224D18 if codec == 3 else 0x28B52FFD)


cdef class SegmentTail:
    cdef public int64_t base_offset, size, first_append_ms, interval_bytes, _indexed_to, _recent_floor
    cdef public bint index_stale
    cdef public object file, max_timestamp, _index
    cdef public array.array _recent_ends, _recent_positions

    def note(self, int64_t base_offset, int64_t next_offset, int64_t size, int64_t max_timestamp):
        """A batch has been written at the end of the file of an active segment."""
        self.written(base_offset, next_offset, size, max_timestamp)

    cdef written(self, int64_t base_offset, int64_t next_offset, int64_t size, int64_t max_timestamp):
        cdef int64_t position = self.size, known_max = self.max_timestamp
        cdef array.array ends = self._recent_ends, positions = self._recent_positions
        cdef unsigned int position_in_file = <unsigned int> position
        if position - self._indexed_to >= self.interval_bytes:
            self._index.add(base_offset - self.base_offset, position, known_max)
            self._indexed_to = position
        if max_timestamp > known_max:
            self.max_timestamp = max_timestamp
        if len(ends) >= 2 * RECENT_BATCHES:
            self._recent_floor = ends.data.as_longlongs[RECENT_BATCHES - 1]
            del ends[:RECENT_BATCHES], positions[:RECENT_BATCHES]
        array.extend_buffer(ends, <char *> &next_offset, 1)
        array.extend_buffer(positions, <char *> &position_in_file, 1)
        self.size = position + size
        self.index_stale = True


cdef class LogTail:
    cdef public int64_t start_offset, end_offset, bytes_since_checkpoint, now_ms, newest_offset, newest_position, cuts
    cdef public bint changed, followed, hears_all
    cdef public tuple segments
    cdef public object config, offline, producers, epochs, committed_offset, lock, newest, log
    cdef object _headroom
    cdef set _unsynced

    # What `config` says, and that it is `config` that says so.
    cdef object _read_config
    cdef bint _batches_stay_closed, _opened_for_delays_only
    cdef int64_t _max_message_bytes, _after_max_ms, _before_max_ms, _segment_bytes, _segment_ms, _segment_index_bytes

    def __init__(self, tuple segments, int64_t start_offset, int64_t end_offset, config, epochs, producers, headroom,
                 int64_t now_ms, set unsynced, log):
        self.segments = segments
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.config = config
        self.epochs = epochs
        self.producers = producers
        self._headroom = headroom
        self.now_ms = now_ms
        self.newest_offset = self.newest_position = -1
        self.lock = threading.RLock()
        self._unsynced = unsynced
        self.log = log

    cdef _read(self):
        config = self.config
        self._batches_stay_closed = config.batches_stay_closed
        self._opened_for_delays_only = config.opened_for_delays_only
        self._max_message_bytes = config.max_message_bytes
        self._after_max_ms = min(config.timestamp_after_max_ms, FOR_EVER_MS)
        self._before_max_ms = min(config.timestamp_before_max_ms, FOR_EVER_MS)
        self._segment_bytes = config.segment_bytes
        self._segment_ms = min(config.segment_ms, FOR_EVER_MS)
        self._segment_index_bytes = config.segment_index_bytes
        self._read_config = config

    def append_usual(self, records, int32_t leader_epoch, int64_t now_ms):
        """What PartitionLog.append does for a client, if `records` is one batch about which nothing is special; else
        None, and nothing has happened. OSError or MemoryError if the write
        fails; then nothing has happened, either."""
        cdef Py_buffer view
        if self.config is not self._read_config:
            self._read()
        if not self._batches_stay_closed and not self._opened_for_delays_only:
            return None
        if self.offline is not None or self.hears_all:
            return None
        PyObject_GetBuffer(records, &view, PyBUF_WRITABLE)
        try:
            if self._opened_for_delays_only and may_be_delayed(<const uint8_t *> view.buf, view.len):
                return None
            return self._append(records, <uint8_t *> view.buf, view.len, leader_epoch, now_ms)
        finally:
            PyBuffer_Release(&view)

    cdef _append(self, records, uint8_t *batch, int64_t size, int32_t leader_epoch, int64_t now_ms):
        cdef int32_t last_offset_delta
        cdef int64_t max_timestamp, offset, following
        cdef SegmentTail segment
        cdef bint idempotent
        if size < HEADER_BYTES or int32_at(batch + 8) != size - PREFIX_BYTES or size > self._max_message_bytes:
            return None
        if batch[16] != MAGIC or batch[21] != 0 or batch[22] > LAST_CODEC:  # attributes: a codec, and nothing else
            return None
        last_offset_delta, max_timestamp = int32_at(batch + 23), int64_at(batch + 35)
        if last_offset_delta < 0 or int32_at(batch + 57) != <int64_t> last_offset_delta + 1:
            return None
        idempotent = int64_at(batch + 43) >= 0
        if idempotent and not self._is_next(int64_at(batch + 43), int16_at(batch + 51), int32_at(batch + 53)):
            return None
        if <uint32_t> int32_at(batch + 17) != <uint32_t> crc32c(records[21:]):
            return None
        if not self._are_welcome(batch, batch + size, now_ms):
            return None
        with self.lock:
            segment = self.segments[-1]
            offset = self.end_offset
            following = offset + last_offset_delta + 1
            if not segment.size or segment._recent_floor == INACTIVE or leader_epoch > <int64_t> self.epochs.latest:
                return None
            if self._has_outgrown(segment, size, following, now_ms):
                return None
            if self._headroom is not None:
                self._headroom.take(size)
            self.now_ms = now_ms
            stamp(batch, offset, leader_epoch)
            self._put(segment, records, size)
            try:
                self.end_offset = following
                segment.written(offset, following, size, max_timestamp)
                if idempotent:
                    self.producers.remember(read_header(records), offset, -1, now_ms)
                return Appended(offset, following - 1, -1, self.start_offset, False, size)
            except MemoryError as error:
                failing.lost_count(self, error)

    cdef bint _are_welcome(self, const uint8_t *batch, const uint8_t *end, int64_t now_ms) noexcept:
        """Whether the records are as they should be, of times that the topic takes, and the header says which is the
        latest. Of compressed ones, whether header and first bytes look like it."""
        cdef int64_t first = int64_at(batch + 27), max_timestamp = int64_at(batch + 35)
        cdef int64_t earliest = first, latest = max_timestamp
        cdef Walk walk
        if batch[22] == 0:
            walk.at, walk.end = batch + HEADER_BYTES, end
            if not walk_records(&walk, int32_at(batch + 57)):
                return False
            if add_overflows(first, walk.earliest, &earliest) or add_overflows(first, walk.latest, &latest):
                return False
            if latest != max_timestamp:
                return False
        else:
            if not begins_as(batch[22], batch + HEADER_BYTES, end):
                return False
            if earliest > latest:
                earliest, latest = latest, earliest
        return earliest >= now_ms - self._before_max_ms and latest <= now_ms + self._after_max_ms

    cdef bint _is_next(self, int64_t producer_id, int16_t epoch, int32_t base_sequence) except -1:
        """Whether this is the batch that is expected next of a producer who has written before, with no transaction
        open anywhere in the partition."""
        producer = self.producers.producers.get(producer_id)
        if producer is None or self.producers.open or epoch < 0 or base_sequence < 0:
            return False
        return base_sequence == <int64_t> producer.next_sequence and epoch == <int64_t> producer.epoch

    def outgrown(self, SegmentTail segment not None, int64_t size, int64_t next_offset, int64_t now_ms):
        """Whether this write would make a segment, which is not empty, too large or too old."""
        if self.config is not self._read_config:
            self._read()
        return self._has_outgrown(segment, size, next_offset, now_ms)

    cdef bint _has_outgrown(self, SegmentTail segment, int64_t size, int64_t next_offset, int64_t now_ms) except -1:
        return (
            segment.size + size > self._segment_bytes
            or now_ms - segment.first_append_ms >= self._segment_ms
            or next_offset - segment.base_offset > INT32_MAX
            or (segment._index is not None and 8 * len(segment._index.offsets) >= self._segment_index_bytes)
        )

    def grown(self):
        """There is something in the log that is not synced."""
        self._unsynced.add(self.log)

    def write(self, SegmentTail segment not None, records):
        """Put what is stamped into the active segment's file. OSError or MemoryError, and the file is as before, if
        that fails."""
        self._put(segment, records, len(records))

    cdef _put(self, SegmentTail segment, records, int64_t size):
        newest = bytes(records) if self.followed and size <= KEPT_BYTES else None
        self._unsynced.add(self.log)  # first what may need memory: after the write nothing may fail
        with segment.file as file:
            try:
                file.append((records,))
            except (OSError, MemoryError):
                failing.cut_back(self, segment, file)
                raise
        self.newest, self.newest_offset, self.newest_position = newest, self.end_offset, segment.size
        self.followed = False
        self.bytes_since_checkpoint += size
        self.changed = True


cdef class TailView:
    """What a log shows of its tail, for as much as it costs to look there directly."""

    cdef public LogTail tail

    @property
    def start_offset(self):
        return self.tail.start_offset

    @property
    def end_offset(self):
        return self.tail.end_offset

    @property
    def segments(self):
        return self.tail.segments

    @property
    def config(self):
        return self.tail.config

    @property
    def offline(self):
        return self.tail.offline

    @property
    def epochs(self):
        return self.tail.epochs

    @property
    def producers(self):
        return self.tail.producers

    @property
    def committed_offset(self):
        return self.tail.committed_offset

    @property
    def cuts(self):
        return self.tail.cuts

    @property
    def bytes_since_checkpoint(self):
        return self.tail.bytes_since_checkpoint
