# walks over the records of a batch without making objects of them: included by _records.pyx, which refuses in words,
# and by the usual append (log/_tail.pyx), which asks only whether all is well.
#
# A record that is laid out as nearly all are is checked by `plain_record`: lengths of one or two bytes, a small time
# delta, numbers as short as they can be, no headers. Any other is read field by field by `any_record`, which has the
# whole rule; its twin is `check_records` in _records_py.py. Neither reads a byte outside [at, end). The including module
# cimports INT64_MAX, INT64_MIN, int64_t, uint8_t and uint64_t.

cdef enum:
    PLAIN_BYTES = 12  # of a plain record before its key, at most


cdef struct Walk:
    const uint8_t *at
    const uint8_t *end
    int64_t earliest  # of the records' time deltas
    int64_t latest
    int64_t place  # of the record that is wrong
    const char *wrong  # and what is wrong with it


cdef inline bint walk_records(Walk *walk, int64_t count) noexcept nogil:
    """Whether `count` records fill [at, end) exactly, each as it should be; if not, `wrong` is set."""
    cdef const uint8_t *at = walk.at
    cdef const uint8_t *end = walk.end
    cdef const uint8_t *stop
    cdef int64_t place, delta = 0, earliest = INT64_MAX, latest = INT64_MIN
    walk.wrong, walk.place = NULL, 0
    if count < 1:
        walk.wrong = "it is missing"
        return False
    for place in range(count):
        stop = plain_record(at, end, place, &delta)
        if stop == NULL:
            walk.at = at
            walk.wrong = any_record(walk, place, &delta)
            if walk.wrong != NULL:
                walk.place = place
                return False
            stop = walk.at
        at = stop
        if delta < earliest:
            earliest = delta
        if delta > latest:
            latest = delta
    if at != end:
        walk.place = count
        walk.wrong = "bytes follow the last record"
        return False
    walk.earliest, walk.latest = earliest, latest
    return True


cdef inline const uint8_t *plain_record(
    const uint8_t *at, const uint8_t *end, int64_t place, int64_t *delta
) noexcept nogil:
    """The end of a record that is laid out as nearly all are; NULL if this one is not."""
    cdef uint64_t number
    cdef const uint8_t *stop
    if end - at < PLAIN_BYTES:
        return NULL
    number = at[0]
    at += 1
    if number >= 0x80:
        number = (number & 0x7F) | <uint64_t> at[0] << 7
        at += 1
    stop = at + (number >> 1)
    if number & 1 or number >= 0x4000 or stop > end:
        return NULL
    number = at[1]  # after the attributes, the time
    if (at[0] | number) >= 0x80:
        number = (number & 0x7F) | <uint64_t> at[2] << 7
        if at[0] >= 0x80 or number >= 0x4000:
            return NULL
        at += 1
    at += 2
    delta[0] = <int64_t> (number >> 1) ^ -(<int64_t> (number & 1))
    at = after_offset(at, <uint64_t> place << 1)
    if at == NULL:
        return NULL
    number = at[0]
    if number >= 0x80 or (number & 1 and number != 1):
        return NULL
    at += 1 + (number >> 1)
    if stop - at < 2:
        return NULL
    number = at[0]
    at += 1
    if number >= 0x80:
        number = (number & 0x7F) | <uint64_t> at[0] << 7
        at += 1
    if number >= 0x4000 or (number & 1 and number != 1):
        return NULL
    at += number >> 1
    if at + 1 != stop or at[0]:
        return NULL
    return stop


cdef inline const uint8_t *after_offset(const uint8_t *at, uint64_t number) noexcept nogil:
    """The place after this number, if it stands here in up to three bytes; else NULL."""
    if number < 0x80:
        return at + 1 if at[0] == number else NULL
    if at[0] != (number & 0x7F | 0x80):
        return NULL
    if number < 0x4000:
        return at + 2 if at[1] == number >> 7 else NULL
    if number < 0x200000 and at[1] == (number >> 7 & 0x7F | 0x80):
        return at + 3 if at[2] == number >> 14 else NULL
    return NULL


cdef const char *any_record(Walk *walk, int64_t place, int64_t *delta) noexcept nogil:
    """Reads one record and moves `at` behind it; what is wrong with it, or NULL."""
    cdef const uint8_t *end = walk.end
    cdef const uint8_t *at = walk.at
    cdef int64_t number = 0
    if at == end:
        return "it is missing"
    if not walked_number(&at, end, 32, &number) or number < 0 or number > end - at:
        return "its length leads out of the batch"
    end = at + number
    if at == end:
        return "it is empty"
    if at[0] >= 0x80:  # no bit has a meaning; kafka-python and aiokafka read a varint here
        return "its attributes are none"
    at += 1
    if not walked_number(&at, end, 64, delta):
        return "its time is no number"
    if not walked_number(&at, end, 32, &number) or number != place:
        return "its offset does not follow the one before"
    if not walked_field(&at, end, True):
        return "its key leads out of it"
    if not walked_field(&at, end, True):
        return "its value leads out of it"
    if not walked_number(&at, end, 32, &number) or number < 0 or number > (end - at) // 2:
        return "it claims more headers than it holds"
    for _ in range(number):
        if not walked_field(&at, end, False) or not walked_field(&at, end, True):
            return "a header leads out of it or has no key in UTF-8"
    if at != end:
        return "it is longer than its fields"
    walk.at = at
    return NULL


cdef inline bint walked_number(const uint8_t **at, const uint8_t *end, int bits, int64_t *found) noexcept nogil:
    cdef uint64_t value = 0, byte
    cdef int shift = 0
    while at[0] < end and shift < bits:
        byte = at[0][0]
        at[0] += 1
        if shift == 63 and byte > 1:
            return False
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if bits == 32 and value >> 32:
                return False
            found[0] = <int64_t> (value >> 1) ^ -(<int64_t> (value & 1))
            return True
    return False


cdef inline bint walked_field(const uint8_t **at, const uint8_t *end, bint may_be_null) noexcept nogil:
    """A length and so many bytes; a field that may not be null is a name in UTF-8."""
    cdef int64_t size = 0
    if not walked_number(at, end, 32, &size) or size > end - at[0]:
        return False
    if size < 0:
        return may_be_null and size == -1
    at[0] += size
    return may_be_null or is_utf8(at[0] - size, at[0])


cdef bint is_utf8(const uint8_t *at, const uint8_t *end) noexcept nogil:
    """As Python decodes it: nothing longer than needed, no surrogates, nothing beyond U+10FFFF."""
    cdef uint64_t first, second
    cdef int more
    while at < end:
        first = at[0]
        at += 1
        if first < 0x80:
            continue
        if first < 0xC2 or first > 0xF4 or at == end:
            return False
        more = 1 + (first >= 0xE0) + (first >= 0xF0)
        second = at[0]
        if first == 0xE0 and second < 0xA0 or first == 0xED and second > 0x9F:
            return False
        if first == 0xF0 and second < 0x90 or first == 0xF4 and second > 0x8F:
            return False
        while more:
            if at == end or at[0] & 0xC0 != 0x80:
                return False
            at += 1
            more -= 1
    return True
