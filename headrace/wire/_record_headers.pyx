# cython: language_level=3, boundscheck=False, wraparound=False
"""Finding records by the names of their headers: the compiled twin of _record_headers_py.py."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

from headrace.wire.errors import Malformed

include "_number_reading.pxi"


cdef inline object blob(const uint8_t **at, const uint8_t *end):
    cdef Py_ssize_t size = span(at, end)
    if size < 0:
        return None
    found = PyBytes_FromStringAndSize(<const char *> at[0], size)
    at[0] += size
    return found


def marked_records(const uint8_t[::1] section not None, int64_t count, tuple names not None):
    """(place, where it begins and ends, key, [(which name, value)]) of each record that has a header with one of these
    names, which all begin with `headrace.`."""
    check_count(section.shape[0], count)
    cdef list found = []
    if count == 0 and section.shape[0] == 0:
        return found
    cdef const uint8_t *start = &section[0]
    cdef const uint8_t *at = start
    cdef const uint8_t *end = at + section.shape[0]
    cdef const uint8_t *first
    cdef const uint8_t *stop
    cdef const uint8_t *key_at
    cdef const uint8_t *name_at
    cdef Py_ssize_t size, wanted, which
    cdef int64_t headers, turn, place
    cdef list marks
    cdef bytes name
    for turn in range(count):
        first = at
        stop = record_end(&at, end)
        number(&at, stop, 64)
        number(&at, stop, 32)
        key_at = at
        skip(&at, stop)
        skip(&at, stop)
        headers = number(&at, stop, 32)
        if headers < 0 or headers > (stop - at) // 2:
            raise Malformed(f"a record claims {headers} headers in {stop - at} bytes")
        marks = None
        for place in range(headers):
            size = span(&at, stop)
            if size < 0:
                raise Malformed("a record header without a key")
            name_at = at
            at += size
            wanted = -1
            if size > 9 and memcmp(name_at, b"headrace.", 9) == 0:
                for which in range(len(names)):
                    name = names[which]
                    if size == PyBytes_GET_SIZE(name) and memcmp(name_at, PyBytes_AS_STRING(name), size) == 0:
                        wanted = which
            if wanted < 0:
                skip(&at, stop)
                continue
            if marks is None:
                marks = []
            marks.append((wanted, blob(&at, stop)))
        if marks is not None:
            found.append((turn, first - start, stop - start, blob(&key_at, stop), marks))
        at = stop
    check_end(at, end)
    return found
