# cython: language_level=3, boundscheck=False, wraparound=False
"""Filtering the records of a batch by their tags: the compiled twin of _tags_py.py, which documents the rules."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from headrace.wire.errors import Malformed

cdef extern from "Python.h":
    object PyByteArray_FromStringAndSize(const char *, Py_ssize_t)

include "_number_reading.pxi"


cdef enum:
    TAGS = 128  # slots of a table of tags in a batch, a power of two
    MOST_TAGS = 64  # that the table holds
    MOST_WANTED = 64
    ANY_TAG = 0
    ALL_TAGS = 1
    NO_TAG = 2


cdef struct Tag:
    const uint8_t *at  # NULL: a free slot
    Py_ssize_t size
    uint64_t wanted  # the bit of this tag among the wanted ones; 0 if it is none of them


cdef struct Tags:
    Tag slots[TAGS]
    Tag wanted[MOST_WANTED]
    Py_ssize_t wanted_count
    Py_ssize_t count
    bint crowded  # there were more than the table holds


cdef uint64_t wanted_bit(Tags *tags, const uint8_t *at, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t place
    for place in range(tags.wanted_count):
        if tags.wanted[place].size == size and memcmp(tags.wanted[place].at, at, size) == 0:
            return (<uint64_t> 1) << place
    return 0


cdef uint64_t tag_bit(Tags *tags, const uint8_t *at, Py_ssize_t size) noexcept nogil:
    """Which wanted tag this is; enters it into the table."""
    cdef uint64_t mixed = 14695981039346656037U
    cdef Py_ssize_t place
    for place in range(size):
        mixed = (mixed ^ at[place]) * 1099511628211U
    place = <Py_ssize_t> ((mixed ^ mixed >> 32) & (TAGS - 1))
    while tags.slots[place].at != NULL:
        if tags.slots[place].size == size and memcmp(tags.slots[place].at, at, size) == 0:
            return tags.slots[place].wanted
        place = (place + 1) & (TAGS - 1)
    mixed = wanted_bit(tags, at, size)
    if tags.count == MOST_TAGS:
        tags.crowded = True
        return mixed
    tags.count += 1
    tags.slots[place] = Tag(at, size, mixed)
    return mixed


cdef inline uint64_t record_tags(
    const uint8_t *at, const uint8_t *stop, const uint8_t *name, Py_ssize_t name_size, Tags *tags, bint *tagged
) except? 1:
    """The wanted tags of the record whose headers begin at `at`, as bits."""
    cdef int64_t headers = number(&at, stop, 32), turn
    cdef Py_ssize_t size, value
    cdef uint64_t found = 0
    cdef bint is_tag
    tagged[0] = False
    if headers < 0 or headers > (stop - at) // 2:
        raise Malformed(f"a record claims {headers} headers in {stop - at} bytes")
    for turn in range(headers):
        size = span(&at, stop)
        if size < 0:
            raise Malformed("a record header without a key")
        is_tag = size == name_size and memcmp(at, name, size) == 0
        at += size
        value = span(&at, stop)
        if value < 0:
            continue
        if is_tag:
            tagged[0] = True
            found |= tag_bit(tags, at, value)
        at += value
    if at != stop:
        raise Malformed("a record is longer than its fields")
    return found


cdef uint64_t begin_tags(Tags *tags, tuple wanted):
    """An empty table; the bits of all wanted tags."""
    memset(tags, 0, sizeof(Tags))
    cdef bytes tag
    for tag in wanted:
        tags.wanted[tags.wanted_count] = Tag(<const uint8_t *> PyBytes_AS_STRING(tag), PyBytes_GET_SIZE(tag), 0)
        tags.wanted_count += 1
    return (<uint64_t> -1) >> (64 - tags.wanted_count) if tags.wanted_count else 0


cdef list tags_seen(Tags *tags):
    """All that were entered; None if there were more."""
    if tags.crowded:
        return None
    cdef list seen = []
    cdef Py_ssize_t place
    for place in range(TAGS):
        if tags.slots[place].at != NULL:
            seen.append(PyBytes_FromStringAndSize(<const char *> tags.slots[place].at, tags.slots[place].size))
    return seen


def filter_tagged(
    const uint8_t[::1] section not None, int64_t count, bytes name not None, tuple wanted not None, int match
):
    """The records whose tags match: (how many, their bytes, their latest time delta, all tags, whether some record has
    none). The tags are None if they are too many to be told. If all records match, their bytes are None."""
    check_count(section.shape[0], count)
    if len(wanted) > MOST_WANTED:
        raise ValueError(f"{len(wanted)} tags are wanted, at most {MOST_WANTED} can be")
    if count == 0 and section.shape[0] == 0:
        return 0, b"", 0, [], False
    cdef Tags tags
    cdef uint64_t every = begin_tags(&tags, wanted)
    out = PyByteArray_FromStringAndSize(NULL, section.shape[0])
    cdef uint8_t *first = <uint8_t *> PyByteArray_AS_STRING(out)
    cdef uint8_t *to = first
    cdef const uint8_t *at = &section[0]
    cdef const uint8_t *end = at + section.shape[0]
    cdef const uint8_t *start
    cdef const uint8_t *stop
    cdef const uint8_t *named = <const uint8_t *> PyBytes_AS_STRING(name)
    cdef Py_ssize_t name_size = PyBytes_GET_SIZE(name)
    cdef int64_t turn, delta, latest = INT64_MIN, kept = 0
    cdef uint64_t found
    cdef bint tagged = False, untagged = False, matches
    for turn in range(count):
        start = at
        stop = record_end(&at, end)
        delta = number(&at, stop, 64)
        number(&at, stop, 32)
        skip(&at, stop)
        skip(&at, stop)
        found = record_tags(at, stop, named, name_size, &tags, &tagged)
        untagged = untagged or not tagged
        matches = found != 0 if match == ANY_TAG else found == every if match == ALL_TAGS else found == 0
        if matches:
            memcpy(to, start, stop - start)
            to += stop - start
            kept += 1
            if delta > latest:
                latest = delta
        at = stop
    check_end(at, end)
    if kept == count:
        return kept, None, latest, tags_seen(&tags), untagged
    PyByteArray_Resize(out, to - first)
    return kept, out, latest, tags_seen(&tags), untagged
