# cython: language_level=3
"""The usual Produce and Fetch as bytes: the compiled twin of _express_py.py, function by function.

The formats and the rules stand there. Every byte of a request is read through `take`, which stops at the end of the
frame, so that nothing from the wire can lead out of it. A reply is written into memory that was measured for it before:
the ROOMs say how much each part takes at most.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef extern from "Python.h":
    object PyByteArray_FromStringAndSize(const char *, Py_ssize_t)
    const char *PyUnicode_AsUTF8AndSize(object, Py_ssize_t *) except NULL

cdef enum:
    ID_BYTES = 16
    LENGTH_ROOM = 5  # a varint of 32 bits
    PRODUCE_ROOM = 8 + 1 + 4 + LENGTH_ROOM + 4 + 30 + 6 + 5  # head, tags, arrays, the name's length, the answer, its
    # errors, throttle and tags; the name is extra
    FETCH_ROOM = 8 + 1 + 10 + LENGTH_ROOM + 1  # head, tags, throttle and session, the array's length, tags
    TOPIC_ROOM = LENGTH_ROOM + LENGTH_ROOM + 1  # the name's length, the array's, tags; the name is extra
    PARTITION_ROOM = 30 + 4 + 4 + LENGTH_ROOM + 1  # the answer, aborted transactions, replica, records' length, tags
    READ_COMMITTED = 1
    MOST_FETCHED = 500


class Unusual(Exception):
    """A request that is not for the express lane."""


cdef struct Cursor:
    const uint8_t *start
    const uint8_t *at
    const uint8_t *end


ctypedef tuple (*Reader)(object frame, int version, Cursor *body)


# --- reading --------------------------------------------------------------------------------------------------------


cdef inline const uint8_t *take(Cursor *body, Py_ssize_t size) except NULL:
    """The next so many bytes, all of which are there."""
    cdef const uint8_t *taken = body.at
    if size < 0 or size > body.end - taken:
        raise Unusual
    body.at += size
    return taken


cdef inline int int8(Cursor *body) except? -1:
    return take(body, 1)[0]


cdef inline int int16(Cursor *body) except? -1:
    cdef const uint8_t *p = take(body, 2)
    return <int16_t> (p[0] << 8 | p[1])


cdef inline int32_t int32(Cursor *body) except? -1:
    cdef const uint8_t *p = take(body, 4)
    return <int32_t> (<uint32_t> p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3])


cdef inline int64_t int64(Cursor *body) except? -1:
    cdef uint64_t high = <uint32_t> int32(body)
    return <int64_t> (high << 32 | <uint32_t> int32(body))


cdef inline int expect(Cursor *body, int byte, Py_ssize_t times) except -1:
    """So many bytes, all of them this one."""
    cdef const uint8_t *found = take(body, times)
    cdef Py_ssize_t i
    for i in range(times):
        if found[i] != byte:
            raise Unusual
    return 0


cdef inline int32_t count(Cursor *body, bint compact) except? -1:
    """The length of an array; 0 or less for an empty one. A compact one is as short as one byte can say."""
    if not compact:
        return int32(body)
    cdef int found = int8(body)
    if found > 0x7F:
        raise Unusual
    return found - 1


cdef inline int32_t some_of(Cursor *body, bint compact, int32_t *left) except? -1:
    """As `count`, of items of which `left` are not too many."""
    cdef int32_t found = count(body, compact)
    if found > left[0]:
        raise Unusual
    if found > 0:
        left[0] -= found
    return found


cdef inline object topic_of(Cursor *body, bint compact, bint by_id):
    if by_id:
        return PyBytes_FromStringAndSize(<const char *> take(body, ID_BYTES), ID_BYTES)
    cdef Py_ssize_t size = count(body, True) if compact else int16(body)
    return PyUnicode_DecodeUTF8(<const char *> take(body, size), size, NULL)


cdef inline Py_ssize_t records_size(Cursor *body, bint compact) except? -1:
    if not compact:
        return int32(body)
    cdef uint64_t length = 0
    cdef int byte, shift
    for shift in range(0, 35, 7):
        byte = int8(body)
        length |= <uint64_t> (byte & 0x7F) << shift
        if byte <= 0x7F:
            return <Py_ssize_t> length - 1
    raise Unusual


cdef tuple asked(frame, int version, Py_ssize_t at, Reader read):
    """What `read` makes of the body at `at`; None if there is anything unusual about it."""
    cdef Py_buffer view
    cdef Cursor body
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        body.start = body.at = <const uint8_t *> view.buf
        body.end = body.start + view.len
        take(&body, at)
        return read(frame, version, &body)
    except (Unusual, UnicodeDecodeError):
        return None
    finally:
        PyBuffer_Release(&view)


def read_produce(frame, int version, Py_ssize_t at):
    """What the body at `at` asks for; the records are a view of the frame."""
    return asked(frame, version, at, produce_asked)


cdef tuple produce_asked(frame, int version, Cursor *body):
    cdef bint compact = version >= 9
    if (int8(body) != 0) if compact else (int16(body) != -1):
        raise Unusual  # a transaction
    cdef int acks = int16(body)
    int32(body)  # the timeout
    if count(body, compact) != 1:
        raise Unusual
    topic = topic_of(body, compact, version >= 13)
    if count(body, compact) != 1:
        raise Unusual
    cdef int32_t index = int32(body)
    cdef Py_ssize_t size = records_size(body, compact)
    cdef Py_ssize_t start = body.at - body.start
    take(body, size)
    if compact:
        expect(body, 0, 3)  # no tags of the partition, the topic and the request
    if body.at != body.end:
        raise Unusual
    return acks, topic, index, frame[start:start + size]


def read_fetch(frame, int version, Py_ssize_t at):
    """What the body at `at` asks for."""
    return asked(frame, version, at, fetch_asked)


cdef tuple fetch_asked(frame, int version, Cursor *body):
    cdef bint compact = version >= 12
    if version < 15:
        expect(body, 0xFF, 4)  # no replica
    cdef int32_t wait_ms = int32(body), min_bytes = int32(body), max_bytes = int32(body)
    cdef bint stable = int8(body) == READ_COMMITTED
    if version >= 7:
        expect(body, 0, 4)  # no session
        expect(body, 0xFF, 4)
    cdef list topics = [], partitions
    cdef int32_t i, j
    cdef int32_t left = MOST_FETCHED
    for i in range(some_of(body, compact, &left)):
        topic = topic_of(body, compact, version >= 13)
        partitions = []
        for j in range(some_of(body, compact, &left)):
            partitions.append(fetched(version, body))
        if compact:
            expect(body, 0, 1)  # no tags
        topics.append((topic, partitions))
    if compact:
        expect(body, 1, 2)  # nothing forgotten, no rack
        expect(body, 0, 1)
    elif version >= 7:
        expect(body, 0, 4 if version < 11 else 6)
    if body.at != body.end:
        raise Unusual
    return wait_ms, min_bytes, max_bytes, stable, topics


cdef inline tuple fetched(int version, Cursor *body):
    cdef int32_t index = int32(body)
    cdef int32_t leader_epoch = int32(body) if version >= 9 else -1
    cdef int64_t offset = int64(body)
    cdef int32_t last_epoch = int32(body) if version >= 12 else -1
    if version >= 5:
        take(body, 8)  # the log start
    cdef int32_t max_bytes = int32(body)
    if version >= 12:
        expect(body, 0, 1)  # no tags
    return index, leader_epoch, offset, last_epoch, max_bytes


# --- writing --------------------------------------------------------------------------------------------------------


cdef inline uint8_t *put(uint8_t *at, int byte, Py_ssize_t times) noexcept:
    memset(at, byte, times)
    return at + times


cdef inline uint8_t *put_number(uint8_t *at, uint64_t number, int size) noexcept:
    cdef int i
    for i in range(size):
        at[i] = <uint8_t> (number >> 8 * (size - 1 - i))
    return at + size


cdef inline uint8_t *put_count(uint8_t *at, uint64_t number, bint compact) noexcept:
    """The length of an array, or of records."""
    if not compact:
        return put_number(at, number, 4)
    number += 1
    while number > 0x7F:
        at[0] = <uint8_t> (number & 0x7F | 0x80)
        number >>= 7
        at += 1
    at[0] = <uint8_t> number
    return at + 1


cdef inline const char *name_of(topic, Py_ssize_t *size) except NULL:
    if isinstance(topic, bytes):
        size[0] = PyBytes_GET_SIZE(topic)
        return PyBytes_AS_STRING(topic)
    return PyUnicode_AsUTF8AndSize(topic, size)


cdef inline uint8_t *put_topic(uint8_t *at, topic, bint compact) except NULL:
    cdef Py_ssize_t size = 0
    cdef const char *name = name_of(topic, &size)
    if not compact:
        at = put_number(at, size, 2)
    elif not isinstance(topic, bytes):
        at = put_count(at, size, True)
    memcpy(at, name, size)
    return at + size


cdef inline uint8_t *put_answer(
    uint8_t *at, int version, int32_t index, int64_t first, int64_t second, int64_t start
) noexcept:
    """What is told of a partition in both replies: no error, two offsets or times, and from v5 on the log's start."""
    at = put(put_number(at, index, 4), 0, 2)
    at = put_number(put_number(at, first, 8), second, 8)
    return put_number(at, start, 8) if version >= 5 else at


def write_produce(
    int version,
    int32_t correlation_id,
    topic,
    int32_t index,
    int64_t base_offset,
    int64_t append_time_ms,
    int64_t log_start,
):
    """The whole reply to one that went well."""
    cdef bint compact = version >= 9
    cdef Py_ssize_t name_bytes = 0
    name_of(topic, &name_bytes)
    cdef object room = PyByteArray_FromStringAndSize(NULL, PRODUCE_ROOM + name_bytes)
    cdef uint8_t *start = <uint8_t *> PyByteArray_AS_STRING(room)
    cdef uint8_t *at = start + 8
    if compact:
        at = put(at, 0, 1)  # no tags in the header
    at = put_topic(put_count(at, 1, compact), topic, compact)
    at = put_answer(put_count(at, 1, compact), version, index, base_offset, append_time_ms, log_start)
    if compact:
        at = put(put(at, 1, 1), 0, 3)  # no record errors, no message, no tags; none of the topic
        at = put(at, 0, 5)  # the throttle, no tags
    else:
        if version >= 8:
            at = put(put(at, 0, 4), 0xFF, 2)
        at = put(at, 0, 4)
    put_number(put_number(start, at - start - 4, 4), <uint32_t> correlation_id, 4)
    return PyBytes_FromStringAndSize(<const char *> start, at - start)


def write_fetch(int version, int32_t correlation_id, bint stable, list topics not None):
    """The whole reply, in pieces: what was found of each partition is one of them."""
    cdef bint compact = version >= 12
    cdef Py_ssize_t size = FETCH_ROOM, name_bytes = 0, records_bytes
    cdef list chunks = [], partitions
    for topic, partitions in topics:
        name_of(topic, &name_bytes)
        size += TOPIC_ROOM + name_bytes + len(partitions) * PARTITION_ROOM
    cdef object room = PyByteArray_FromStringAndSize(NULL, size)
    cdef uint8_t *start = <uint8_t *> PyByteArray_AS_STRING(room)
    cdef uint8_t *at = put_number(start + 4, <uint32_t> correlation_id, 4)
    at = put(at, 0, compact + (10 if version >= 7 else 4))  # no tags in the header, no throttle, error or session
    at = put_count(at, len(topics), compact)
    cdef Py_ssize_t reply_bytes = 0
    for topic, partitions in topics:
        at = put_count(put_topic(at, topic, compact), len(partitions), compact)
        for index, high_watermark, last_stable_offset, log_start, records in partitions:
            at = put_answer(at, version, index, high_watermark, last_stable_offset, log_start)
            if compact:
                at = put(at, stable, 1)  # no aborted transactions; nobody asked for them
            else:
                at = put(at, 0 if stable else 0xFF, 4)
            if version >= 11:
                at = put(at, 0xFF, 4)  # no other replica
            records_bytes = len(records)
            at = put_count(at, records_bytes, compact)
            if records_bytes:
                chunks.append(PyBytes_FromStringAndSize(<const char *> start, at - start))
                chunks.append(records)
                reply_bytes += at - start + records_bytes
                start = at
            at = put(at, 0, compact)  # no tags
        at = put(at, 0, compact)
    at = put(at, 0, compact)
    if at != start:
        chunks.append(PyBytes_FromStringAndSize(<const char *> start, at - start))
        reply_bytes += at - start
    put_number(<uint8_t *> PyBytes_AS_STRING(chunks[0]), reply_bytes - 4, 4)  # it was made here, and nobody has it yet
    return chunks
