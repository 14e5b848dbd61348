# Writes the numbers of a record: included by every compiled module that encodes records.
#
# The including module cimports int64_t, uint8_t and uint64_t, and makes sure that the buffer has room.

cdef Py_ssize_t LONGEST_NUMBER_BYTES = 10


cdef inline uint64_t zigzag(int64_t value) noexcept:
    return (<uint64_t> value << 1) ^ <uint64_t> (value >> 63)


cdef inline Py_ssize_t number_bytes(int64_t value) noexcept:
    cdef uint64_t left = zigzag(value)
    cdef Py_ssize_t size = 1
    while left > 0x7F:
        left >>= 7
        size += 1
    return size


cdef inline uint8_t *put_number(uint8_t *at, int64_t value) noexcept:
    cdef uint64_t left = zigzag(value)
    while left > 0x7F:
        at[0] = <uint8_t> (left & 0x7F | 0x80)
        left >>= 7
        at += 1
    at[0] = <uint8_t> left
    return at + 1
