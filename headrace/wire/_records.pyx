# cython: language_level=3, boundscheck=False, wraparound=False
"""The records inside a batch, uncompressed: the compiled twin of _records_py.py, function by function.

The format and the rules are documented there; the two included files read and write the numbers.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from headrace.wire.errors import BadRecord, Malformed
from headrace.wire.record import Record

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        object (*tp_alloc)(PyTypeObject *, Py_ssize_t)
    void PyObject_GC_UnTrack(PyObject *)
    object PyByteArray_FromStringAndSize(const char *, Py_ssize_t)
    const char *PyUnicode_AsUTF8AndSize(object, Py_ssize_t *) except NULL

cdef extern from *:
    bint sub_overflows "__builtin_sub_overflow"(int64_t, int64_t, int64_t *) noexcept nogil

cdef PyTypeObject *record_type = <PyTypeObject *> <PyObject *> Record
cdef tuple NO_HEADERS = ()

cdef enum:
    LARGE_BYTES = 1 << 20  # of a section whose records take long to walk over
    MOST_PLACES = 1000  # of records that are wrong: so many are told


include "_number_reading.pxi"
include "_number_writing.pxi"
include "_record_walk.pxi"


cdef inline object blob(const uint8_t **at, const uint8_t *end):
    cdef Py_ssize_t size = span(at, end)
    if size < 0:
        return None
    found = PyBytes_FromStringAndSize(<const char *> at[0], size)
    at[0] += size
    return found


# --- reading --------------------------------------------------------------------------------------------------------


def decode_records(
    const uint8_t[::1] section not None,
    int64_t count,
    int64_t base_offset,
    int64_t last_offset_delta,
    int64_t base_timestamp,
    *,
    append_time,
):
    """All records; `append_time`, if given, is the timestamp of each."""
    check_count(section.shape[0], count)
    cdef list records = []
    if count == 0 and section.shape[0] == 0:
        return records
    cdef const uint8_t *at = &section[0]
    cdef const uint8_t *end = at + section.shape[0]
    cdef const uint8_t *stop
    cdef int64_t time_delta, timestamp, last_timestamp = 0
    cdef int64_t offset_delta
    cdef bint own_time = append_time is None
    cdef object time = append_time
    cdef object record, part
    cdef int64_t turn
    for turn in range(count):
        stop = record_end(&at, end)
        time_delta = number(&at, stop, 64)
        offset_delta = number(&at, stop, 32)
        key = blob(&at, stop)
        value = blob(&at, stop)
        offset = absolute_offset(base_offset, offset_delta, last_offset_delta)
        if own_time:
            timestamp = absolute_time(base_timestamp, time_delta)
            if turn == 0 or timestamp != last_timestamp:
                time = timestamp
                last_timestamp = timestamp
        headers = read_headers(&at, stop)
        if at != stop:
            raise Malformed("a record is longer than its fields")
        # A Record is a tuple of five; filling one directly takes a third of the time of a call of its class.
        record = record_type.tp_alloc(record_type, 5)
        part = offset
        Py_INCREF(part)
        PyTuple_SET_ITEM(record, 0, part)
        Py_INCREF(time)
        PyTuple_SET_ITEM(record, 1, time)
        Py_INCREF(key)
        PyTuple_SET_ITEM(record, 2, key)
        Py_INCREF(value)
        PyTuple_SET_ITEM(record, 3, value)
        Py_INCREF(headers)
        PyTuple_SET_ITEM(record, 4, headers)
        PyObject_GC_UnTrack(<PyObject *> record)  # its items cannot form a cycle, so the garbage collector can skip it
        records.append(record)
    check_end(at, end)
    return records


cdef inline tuple read_headers(const uint8_t **at, const uint8_t *end):
    cdef int64_t count = number(at, end, 32)
    if count == 0:
        return NO_HEADERS
    if count < 0 or count > (end - at[0]) // 2:
        raise Malformed(f"a record claims {count} headers in {end - at[0]} bytes")
    cdef list headers = []
    cdef Py_ssize_t size
    cdef int64_t turn
    for turn in range(count):
        size = span(at, end)
        if size < 0:
            raise Malformed("a record header without a key")
        try:
            name = PyUnicode_DecodeUTF8(<char *> at[0], size, NULL)
        except UnicodeDecodeError as error:
            raise Malformed("a record header's key is not UTF-8") from error
        at[0] += size
        value = blob(at, end)
        headers.append((name, value))
    return tuple(headers)


def scan_keys(const uint8_t[::1] section not None, int64_t count, int64_t base_offset, int64_t last_offset_delta):
    """(offset, key, whether it has a value) of every record; the headers are not read."""
    check_count(section.shape[0], count)
    cdef list found = []
    if count == 0 and section.shape[0] == 0:
        return found
    cdef const uint8_t *at = &section[0]
    cdef const uint8_t *end = at + section.shape[0]
    cdef const uint8_t *stop
    cdef int64_t offset_delta
    cdef bint has_value
    cdef int64_t turn
    for turn in range(count):
        stop = record_end(&at, end)
        number(&at, stop, 64)
        offset_delta = number(&at, stop, 32)
        key = blob(&at, stop)
        has_value = span(&at, stop) >= 0
        found.append((absolute_offset(base_offset, offset_delta, last_offset_delta), key, has_value))
        at = stop
    check_end(at, end)
    return found


def first_dated(
    const uint8_t[::1] section not None,
    int64_t count,
    int64_t base_offset,
    int64_t last_offset_delta,
    int64_t base_timestamp,
    int64_t timestamp,
    int64_t from_offset,
):
    """(offset, timestamp) of the first record from `from_offset` on that is as late as `timestamp`, or None."""
    check_count(section.shape[0], count)
    found = None
    if count == 0 and section.shape[0] == 0:
        return found
    cdef const uint8_t *at = &section[0]
    cdef const uint8_t *end = at + section.shape[0]
    cdef const uint8_t *stop
    cdef int64_t time, offset, turn
    for turn in range(count):
        stop = record_end(&at, end)
        time = absolute_time(base_timestamp, number(&at, stop, 64))
        offset = absolute_offset(base_offset, number(&at, stop, 32), last_offset_delta)
        if found is None and offset >= from_offset and time >= timestamp:
            found = (offset, time)
        at = stop
    check_end(at, end)
    return found


def last_and_latest(
    const uint8_t[::1] section not None,
    int64_t count,
    int64_t base_offset,
    int64_t last_offset_delta,
    int64_t base_timestamp,
):
    """The offset of the last record, and the latest timestamp of all; of one record at least."""
    check_count(section.shape[0], count)
    if count == 0:
        raise Malformed("a batch without a record has no last one")
    cdef const uint8_t *at = &section[0]
    cdef const uint8_t *end = at + section.shape[0]
    cdef const uint8_t *stop
    cdef int64_t time, turn, offset = 0, latest = INT64_MIN
    for turn in range(count):
        stop = record_end(&at, end)
        time = absolute_time(base_timestamp, number(&at, stop, 64))
        offset = absolute_offset(base_offset, number(&at, stop, 32), last_offset_delta)
        if time > latest:
            latest = time
        at = stop
    check_end(at, end)
    return offset, latest


def check_records(const uint8_t[::1] section not None, int64_t count, int64_t base_timestamp):
    """(earliest, latest) time of the records, if they are what a client may send; else BadRecord. A time may need more
    than 64 bits."""
    cdef Walk walk
    cdef const uint8_t *none = b""
    cdef Py_ssize_t size = section.shape[0]
    walk.at = &section[0] if size else none
    walk.end = walk.at + size
    cdef bint well
    if size > LARGE_BYTES:  # others have their turn
        with nogil:
            well = walk_records(&walk, count)
    else:
        well = walk_records(&walk, count)
    if not well:
        raise BadRecord(walk.place, walk.wrong.decode())
    return <object> base_timestamp + <object> walk.earliest, <object> base_timestamp + <object> walk.latest


def times_outside(
    const uint8_t[::1] section not None, int64_t count, int64_t base_timestamp, int64_t earliest, int64_t latest
):
    """The places of records whose time is there (not -1) and not in [earliest, latest]; the first thousand."""
    check_count(section.shape[0], count)
    cdef list found = []
    if count == 0:
        return found
    cdef const uint8_t *at = &section[0]
    cdef const uint8_t *end = at + section.shape[0]
    cdef const uint8_t *stop
    cdef int64_t turn, time = 0
    for turn in range(count):
        stop = record_end(&at, end)
        if add_overflows(base_timestamp, number(&at, stop, 64), &time):
            found.append(turn)
        elif time != -1 and (time < earliest or time > latest):
            found.append(turn)
        at = stop
        if len(found) == MOST_PLACES:
            break
    return found


def keyless(const uint8_t[::1] section not None, int64_t count):
    """The places of records without a key; the first thousand."""
    check_count(section.shape[0], count)
    cdef list found = []
    if count == 0:
        return found
    cdef const uint8_t *at = &section[0]
    cdef const uint8_t *end = at + section.shape[0]
    cdef const uint8_t *stop
    cdef int64_t turn
    for turn in range(count):
        stop = record_end(&at, end)
        number(&at, stop, 64)
        number(&at, stop, 32)
        if span(&at, stop) < 0:
            found.append(turn)
            if len(found) == MOST_PLACES:
                break
        at = stop
    return found


def scan_headers(const uint8_t[::1] section not None, int64_t count, tuple names not None):
    """For each of these names the value of each record's first header with that name; None if there is none."""
    check_count(section.shape[0], count)
    cdef list found = [[] for _ in names]
    if count == 0 and section.shape[0] == 0:
        return found
    cdef const uint8_t *at = &section[0]
    cdef const uint8_t *end = at + section.shape[0]
    cdef const uint8_t *stop
    cdef const uint8_t *value
    cdef Py_ssize_t size, wanted, missing
    cdef int64_t headers, turn, place
    cdef list values
    cdef bytes name
    for turn in range(count):
        stop = record_end(&at, end)
        number(&at, stop, 64)
        number(&at, stop, 32)
        skip(&at, stop)
        skip(&at, stop)
        headers = number(&at, stop, 32)
        if headers < 0 or headers > (stop - at) // 2:
            raise Malformed(f"a record claims {headers} headers in {stop - at} bytes")
        missing = len(names)
        for place in range(headers):
            if missing == 0:
                break
            size = span(&at, stop)
            if size < 0:
                raise Malformed("a record header without a key")
            at += size
            value = at
            for wanted in range(len(names)):
                name = names[wanted]
                values = found[wanted]
                if (
                    size == PyBytes_GET_SIZE(name)
                    and len(values) == turn
                    and memcmp(value - size, PyBytes_AS_STRING(name), size) == 0
                ):
                    at = value
                    values.append(blob(&at, stop))
                    missing -= 1
            if at == value:
                skip(&at, stop)
        for wanted in range(len(names)):
            values = found[wanted]
            if len(values) == turn:
                values.append(None)
        at = stop
    check_end(at, end)
    return found


# --- writing --------------------------------------------------------------------------------------------------------


cdef inline Py_ssize_t blob_bytes(bytes blob):
    if blob is None:
        return 1
    return number_bytes(PyBytes_GET_SIZE(blob)) + PyBytes_GET_SIZE(blob)


cdef inline uint8_t *put_blob(uint8_t *at, bytes blob):
    if blob is None:
        return put_number(at, -1)
    at = put_number(at, PyBytes_GET_SIZE(blob))
    memcpy(at, PyBytes_AS_STRING(blob), PyBytes_GET_SIZE(blob))
    return at + PyBytes_GET_SIZE(blob)


cdef inline int64_t delta_of(int64_t value, int64_t base, str what, bint narrow) except? -1:
    cdef int64_t delta = 0
    if sub_overflows(value, base, &delta) or (narrow and (delta < 0 or delta > INT32_MAX)):
        raise ValueError(f"{what} {value} does not fit a batch that starts at {base}")
    return delta


cdef inline object part_of(record, Py_ssize_t turn):
    return <object> PyTuple_GET_ITEM(record, turn)


cdef Py_ssize_t body_bytes(record, int64_t time_delta, int64_t offset_delta) except -1:
    """The size of a record without its length prefix. Checks each part, so that writing it afterwards cannot fail."""
    cdef Py_ssize_t size = 1 + number_bytes(time_delta) + number_bytes(offset_delta)
    cdef Py_ssize_t name_bytes = 0
    cdef tuple headers = part_of(record, 4)
    size += blob_bytes(part_of(record, 2)) + blob_bytes(part_of(record, 3))
    size += number_bytes(len(headers))
    for header in headers:
        PyUnicode_AsUTF8AndSize(header[0], &name_bytes)
        size += number_bytes(name_bytes) + name_bytes + blob_bytes(header[1])
    return size


cdef uint8_t *put_record(uint8_t *at, record, Py_ssize_t size, int64_t base_offset, int64_t base_timestamp) except NULL:
    cdef Py_ssize_t name_bytes = 0
    cdef const char *name
    at = put_number(at, size)
    at[0] = 0
    at = put_number(at + 1, <int64_t> part_of(record, 1) - base_timestamp)
    at = put_number(at, <int64_t> part_of(record, 0) - base_offset)
    at = put_blob(at, part_of(record, 2))
    at = put_blob(at, part_of(record, 3))
    cdef tuple headers = part_of(record, 4)
    at = put_number(at, len(headers))
    for header in headers:
        name = PyUnicode_AsUTF8AndSize(header[0], &name_bytes)
        at = put_number(at, name_bytes)
        memcpy(at, name, name_bytes)
        at = put_blob(at + name_bytes, header[1])
    return at


def encode_records(records, int64_t base_offset, int64_t base_timestamp):
    cdef list kept = list(records)  # a copy, so that no other code can change the list between measuring and writing
    cdef list sizes = []
    cdef Py_ssize_t total = 0, size
    cdef int64_t time_delta, offset_delta
    for record in kept:
        if type(record) is not Record:
            raise TypeError(f"{type(record).__name__} is not a Record")
        time_delta = delta_of(part_of(record, 1), base_timestamp, "timestamp", False)
        offset_delta = delta_of(part_of(record, 0), base_offset, "offset", True)
        size = body_bytes(record, time_delta, offset_delta)
        sizes.append(size)
        total += number_bytes(size) + size
    out = PyByteArray_FromStringAndSize(NULL, total)
    cdef uint8_t *at = <uint8_t *> PyByteArray_AS_STRING(out)
    cdef Py_ssize_t turn
    for turn in range(len(kept)):
        at = put_record(at, kept[turn], sizes[turn], base_offset, base_timestamp)
    return out


def filter_records(const uint8_t[::1] section not None, keep, int64_t timestamp_shift):
    """The records for which `keep` is true; `timestamp_shift` is added to their timestamp deltas."""
    cdef Py_ssize_t count = len(keep)
    check_count(section.shape[0], count)
    if count == 0 and section.shape[0] == 0:
        return bytearray()
    # A shifted timestamp may need more bytes, and so may the record's length.
    cdef Py_ssize_t room = section.shape[0] + (2 * LONGEST_NUMBER_BYTES * count if timestamp_shift else 0)
    out = PyByteArray_FromStringAndSize(NULL, room)
    cdef uint8_t *first = <uint8_t *> PyByteArray_AS_STRING(out)
    cdef uint8_t *to = first
    cdef const uint8_t *at = &section[0]
    cdef const uint8_t *end = at + section.shape[0]
    cdef const uint8_t *start
    cdef const uint8_t *stop
    cdef int64_t moved
    cdef uint8_t attributes
    for wanted in keep:
        start = at
        stop = record_end(&at, end)
        if wanted and timestamp_shift == 0:
            memcpy(to, start, stop - start)
            to += stop - start
        elif wanted:
            attributes = (at - 1)[0]
            moved = absolute_time(number(&at, stop, 64), timestamp_shift)
            to = put_number(to, 1 + number_bytes(moved) + (stop - at))
            to[0] = attributes
            to = put_number(to + 1, moved)
            memcpy(to, at, stop - at)
            to += stop - at
        at = stop
    check_end(at, end)
    PyByteArray_Resize(out, to - first)
    return out
