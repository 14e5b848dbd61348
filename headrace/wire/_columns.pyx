# cython: language_level=3, boundscheck=False, wraparound=False
"""Decodes the records of opened batches into columns: the compiled twin of _columns_py.py.

The layout and the rules are documented there; the included file reads the numbers. Columns are filled in one pass. The
sections give the number of rows, and nearly all of their bytes are values, so the buffers for both are allocated once.
Buffers for keys and headers, which are mostly small, start small and grow: memory that is allocated and not used costs
more than the decoding, because of page faults.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from headrace.wire.errors import Malformed
from headrace.wire import _columns_py as spec

cdef extern from "Python.h":
    object PyByteArray_FromStringAndSize(const char *, Py_ssize_t)

include "_number_reading.pxi"

cdef int KEY = spec.KEY, VALUE = spec.VALUE, OFFSET = spec.OFFSET, TIMESTAMP = spec.TIMESTAMP
cdef int TIMESTAMP_TYPE = spec.TIMESTAMP_TYPE, HEADERS = spec.HEADERS
cdef int64_t EARLIEST_MS = spec.EARLIEST_MS, LATEST_MS = spec.LATEST_MS
cdef bytes TAG_HEADER = spec.TAG_HEADER
cdef Py_ssize_t SMALL_BLOB_BYTES = 16


cdef object room(Py_ssize_t size):
    return PyByteArray_FromStringAndSize(NULL, size)


cdef object cut(object buffer, Py_ssize_t size):
    PyByteArray_Resize(buffer, size)
    return buffer


cdef class Blobs:
    """Concatenated byte strings: the end of each, and which are null."""

    cdef object ends, data, bitmap
    cdef int32_t *end_at
    cdef uint8_t *byte_at
    cdef uint8_t *bits
    cdef Py_ssize_t rows, room_for, size, capacity, nulls

    def __init__(self, Py_ssize_t rows, Py_ssize_t capacity):
        self.ends = room(4 * (rows + 1))
        self.data = room(capacity)
        self.capacity = capacity
        self.end_at = <int32_t *> PyByteArray_AS_STRING(self.ends)
        self.byte_at = <uint8_t *> PyByteArray_AS_STRING(self.data)
        self.end_at[0] = 0
        self.room_for = rows

    cdef int reserve(self, Py_ssize_t more) except -1:
        """Make room for `more` byte strings."""
        cdef Py_ssize_t old = self.room_for
        if self.rows + more > old:
            self.room_for = max(2 * old, self.rows + more)
            PyByteArray_Resize(self.ends, 4 * (self.room_for + 1))
            self.end_at = <int32_t *> PyByteArray_AS_STRING(self.ends)
            if self.bitmap is not None:
                PyByteArray_Resize(self.bitmap, (self.room_for + 7) // 8)
                self.bits = <uint8_t *> PyByteArray_AS_STRING(self.bitmap)
                memset(self.bits + (old + 7) // 8, 0xFF, (self.room_for + 7) // 8 - (old + 7) // 8)
        return 0

    cdef int grow(self, Py_ssize_t more) except -1:
        """Make room for `more` bytes."""
        self.capacity = max(2 * self.capacity, self.size + more)
        PyByteArray_Resize(self.data, self.capacity)
        self.byte_at = <uint8_t *> PyByteArray_AS_STRING(self.data)
        return 0

    cdef inline int put(self, const uint8_t *blob, Py_ssize_t size) except -1:
        if size >= 0:
            if size > self.capacity - self.size:
                self.grow(size)
            memcpy(self.byte_at + self.size, blob, size)
            self.size += size
        else:
            if self.bitmap is None:
                self.bitmap = room((self.room_for + 7) // 8)
                self.bits = <uint8_t *> PyByteArray_AS_STRING(self.bitmap)
                memset(self.bits, 0xFF, (self.room_for + 7) // 8)
            self.bits[self.rows >> 3] &= <uint8_t> ~(1 << (self.rows & 7))
            self.nulls += 1
        self.rows += 1
        self.end_at[self.rows] = <int32_t> self.size
        return 0

    cdef tuple taken(self):
        bitmap = None if self.bitmap is None else cut(self.bitmap, (self.rows + 7) // 8)
        return cut(self.ends, 4 * (self.rows + 1)), cut(self.data, self.size), bitmap, self.nulls


cdef class Columns:
    """The wanted columns."""

    cdef int wanted
    cdef int64_t first, stop
    cdef tuple tags
    cdef object offset_column, time_column, kind_column, list_column
    cdef int64_t *offsets
    cdef int64_t *times
    cdef int32_t *kinds
    cdef int32_t *list_ends
    cdef Blobs keys, values, names, contents
    cdef Py_ssize_t rows

    def __init__(self, int wanted, int64_t first, int64_t stop, tuple tags, Py_ssize_t rows, Py_ssize_t size):
        self.wanted, self.first, self.stop, self.tags = wanted, first, stop, tags
        if wanted & OFFSET:
            self.offset_column = room(8 * rows)
            self.offsets = <int64_t *> PyByteArray_AS_STRING(self.offset_column)
        if wanted & TIMESTAMP:
            self.time_column = room(8 * rows)
            self.times = <int64_t *> PyByteArray_AS_STRING(self.time_column)
        if wanted & TIMESTAMP_TYPE:
            self.kind_column = room(4 * rows)
            self.kinds = <int32_t *> PyByteArray_AS_STRING(self.kind_column)
        if wanted & KEY:
            self.keys = Blobs(rows, min(size, SMALL_BLOB_BYTES * rows))
        if wanted & VALUE:
            self.values = Blobs(rows, size)
        if wanted & HEADERS:
            self.list_column = room(4 * (rows + 1))
            self.list_ends = <int32_t *> PyByteArray_AS_STRING(self.list_column)
            self.list_ends[0] = 0
            self.names = Blobs(rows, min(size, SMALL_BLOB_BYTES * rows))
            self.contents = Blobs(rows, min(size, SMALL_BLOB_BYTES * rows))

    cdef int add(
        self,
        const uint8_t[::1] section,
        int64_t count,
        int64_t base_offset,
        int64_t last_offset_delta,
        int64_t base_timestamp,
        append_time,
    ) except -1:
        check_count(section.shape[0], count)
        if count == 0 and section.shape[0] == 0:
            return 0
        cdef const uint8_t *at = &section[0]
        cdef const uint8_t *end = at + section.shape[0]
        cdef const uint8_t *stop
        cdef const uint8_t *key
        cdef const uint8_t *value
        cdef Py_ssize_t key_bytes, value_bytes
        cdef int64_t time_delta, offset, turn, time_ms = 0
        cdef bint own_time = append_time is None
        cdef bint look_at_headers = self.wanted & HEADERS or len(self.tags) > 0
        if not own_time:
            time_ms = append_time
        for turn in range(count):
            stop = record_end(&at, end)
            time_delta = number(&at, stop, 64)
            offset = number(&at, stop, 32)
            key_bytes = span(&at, stop)
            key = at
            if key_bytes > 0:
                at += key_bytes
            value_bytes = span(&at, stop)
            value = at
            if value_bytes > 0:
                at += value_bytes
            offset = absolute_offset(base_offset, offset, last_offset_delta)
            if own_time:
                time_ms = absolute_time(base_timestamp, time_delta)
            if look_at_headers:
                if not self.check_headers(at, stop):
                    at = stop
                    continue
            if not self.first <= offset < self.stop:
                at = stop
                continue
            if self.wanted & HEADERS:
                self.put_headers(at, stop)
            at = stop
            if self.wanted & OFFSET:
                self.offsets[self.rows] = offset
            if self.wanted & TIMESTAMP:
                self.times[self.rows] = min(max(time_ms, EARLIEST_MS), LATEST_MS) * 1000
            if self.wanted & TIMESTAMP_TYPE:
                self.kinds[self.rows] = 0 if own_time else 1
            if self.wanted & KEY:
                self.keys.put(key, key_bytes)
            if self.wanted & VALUE:
                self.values.put(value, value_bytes)
            self.rows += 1
        check_end(at, end)
        return 0

    cdef bint check_headers(self, const uint8_t *at, const uint8_t *stop) except -1:
        """Whether the record has one of the tags, or no tags are given. Checks that the headers fill it to its end."""
        cdef int64_t count = number(&at, stop, 32)
        cdef Py_ssize_t size
        cdef int64_t turn
        cdef bint named, tagged = not self.tags
        if count < 0 or count > (stop - at) // 2:
            raise Malformed(f"a record claims {count} headers in {stop - at} bytes")
        for turn in range(count):
            size = span(&at, stop)
            if size < 0:
                raise Malformed("a record header without a key")
            named = not tagged and equal(at, size, TAG_HEADER)
            at += size
            size = span(&at, stop)
            if size >= 0:
                if named:
                    tagged = any_equal(at, size, self.tags)
                at += size
        if at != stop:
            raise Malformed("a record is longer than its fields")
        return tagged

    cdef int put_headers(self, const uint8_t *at, const uint8_t *stop) except -1:
        """Add the headers, which were checked before."""
        cdef int64_t count = number(&at, stop, 32)
        cdef Py_ssize_t size
        cdef int64_t turn
        self.names.reserve(count)
        self.contents.reserve(count)
        for turn in range(count):
            size = span(&at, stop)
            self.names.put(at, size)
            at += size
            size = span(&at, stop)
            self.contents.put(at, size)
            if size > 0:
                at += size
        self.list_ends[self.rows + 1] = <int32_t> self.names.rows
        return 0

    cdef tuple taken(self):
        cdef int wanted = self.wanted
        return (
            self.rows,
            cut(self.offset_column, 8 * self.rows) if wanted & OFFSET else None,
            cut(self.time_column, 8 * self.rows) if wanted & TIMESTAMP else None,
            cut(self.kind_column, 4 * self.rows) if wanted & TIMESTAMP_TYPE else None,
            self.keys.taken() if wanted & KEY else None,
            self.values.taken() if wanted & VALUE else None,
            cut(self.list_column, 4 * (self.rows + 1)) if wanted & HEADERS else None,
            self.names.taken() if wanted & HEADERS else None,
            self.contents.taken() if wanted & HEADERS else None,
        )


cdef inline bint equal(const uint8_t *at, Py_ssize_t size, bytes wanted):
    return size == PyBytes_GET_SIZE(wanted) and memcmp(at, PyBytes_AS_STRING(wanted), size) == 0


cdef bint any_equal(const uint8_t *at, Py_ssize_t size, tuple wanted):
    for one in wanted:
        if equal(at, size, one):
            return True
    return False


def fill(sections, int wanted, int64_t first, int64_t stop, tags):
    """See the twin."""
    cdef Py_ssize_t rows = 0, size = 0
    for section in sections:
        check_count(len(section[0]), section[1])
        rows += section[1]
        size += len(section[0])
    cdef Columns columns = Columns(wanted, first, stop, tuple(tags), rows, size)
    for data, count, base_offset, last_offset_delta, base_timestamp, append_time in sections:
        columns.add(data, count, base_offset, last_offset_delta, base_timestamp, append_time)
    return columns.taken()
