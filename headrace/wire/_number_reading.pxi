# Reads the numbers and lengths of a record: included by every compiled module that decodes records.
#
# Every read goes through `number` or `span`, which stop at the given end, so bytes from the wire can never cause a read
# outside the buffer. The including module cimports int64_t, uint8_t and uint64_t and imports Malformed.

cdef extern from *:
    bint add_overflows "__builtin_add_overflow"(int64_t, int64_t, int64_t *) noexcept nogil

cdef Py_ssize_t SMALLEST_RECORD_BYTES = 7


cdef inline int64_t number(const uint8_t **at, const uint8_t *end, int bits) except? -1:
    """A zigzag varint of at most `bits` bits. Most have one or two bytes and take a fast path."""
    cdef const uint8_t *p = at[0]
    cdef uint64_t value
    if end - p >= 2:
        value = p[0]
        if value < 0x80:
            at[0] = p + 1
            return <int64_t> (value >> 1) ^ -(<int64_t> (value & 1))
        if p[1] < 0x80:
            value = (value & 0x7F) | <uint64_t> p[1] << 7
            at[0] = p + 2
            return <int64_t> (value >> 1) ^ -(<int64_t> (value & 1))
    return long_number(at, end, bits)


cdef int64_t long_number(const uint8_t **at, const uint8_t *end, int bits) except? -1:
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    cdef const uint8_t *p = at[0]
    while True:
        if p >= end:
            raise Malformed("a record is truncated")
        byte = p[0]
        p += 1
        if shift == 63 and byte > 1:
            raise Malformed(f"a number in a record needs more than {bits} bits")
        value |= (<uint64_t> (byte & 0x7F)) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise Malformed(f"a number in a record needs more than {bits} bits")
    if bits == 32 and value >> 32:
        raise Malformed(f"a number in a record needs more than {bits} bits")
    at[0] = p
    return <int64_t> (value >> 1) ^ -(<int64_t> (value & 1))


cdef inline Py_ssize_t span(const uint8_t **at, const uint8_t *end) except? -2:
    """Reads a length and checks that so many bytes follow; -1 for null."""
    cdef int64_t size = number(at, end, 32)
    if size < 0:
        return -1
    if size > end - at[0]:
        raise Malformed(f"a field of a record has {size} bytes, but {end - at[0]} are left")
    return size


cdef inline int skip(const uint8_t **at, const uint8_t *end) except -1:
    """Skips the length-prefixed field at `at`."""
    cdef Py_ssize_t size = span(at, end)
    if size > 0:
        at[0] += size
    return 0


cdef inline const uint8_t *record_end(const uint8_t **at, const uint8_t *end) except NULL:
    """The end of the record at `at`; moves `at` to the record's timestamp."""
    cdef int64_t size = number(at, end, 32)
    if size < SMALLEST_RECORD_BYTES - 1 or size > end - at[0]:
        raise Malformed(f"a record has {size} bytes, but {end - at[0]} are left")
    cdef const uint8_t *stop = at[0] + size
    at[0] += 1
    return stop


cdef inline int check_count(Py_ssize_t size, int64_t count) except -1:
    if count < 0 or count > size // SMALLEST_RECORD_BYTES:
        raise Malformed(f"{count} records in {size} bytes")
    return 0


cdef inline int check_end(const uint8_t *at, const uint8_t *end) except -1:
    if at != end:
        raise Malformed(f"{end - at} bytes after the last record of a batch")
    return 0


cdef inline int64_t absolute_offset(int64_t base_offset, int64_t delta, int64_t last_offset_delta) except? -1:
    cdef int64_t offset = 0
    if delta < 0 or delta > last_offset_delta:
        raise Malformed(f"a record with offset delta {delta} in a batch that ends at {last_offset_delta}")
    if add_overflows(base_offset, delta, &offset):
        raise Malformed("a record's offset needs more than 64 bits")
    return offset


cdef inline int64_t absolute_time(int64_t base_timestamp, int64_t delta) except? -1:
    cdef int64_t timestamp = 0
    if add_overflows(base_timestamp, delta, &timestamp):
        raise Malformed("a record's timestamp needs more than 64 bits")
    return timestamp
