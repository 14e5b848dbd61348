# cython: language_level=3, boundscheck=False, wraparound=False
"""Rows in columns to records: the compiled twin of _arrow_encode_py.py, function by function.

The rules are documented there. The size of each buffer is checked once against the number of rows, and each offset
against the buffer that it points into, so a wrong column can never cause a read outside its buffers.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport INT32_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from headrace.wire.row_columns import Blobs, Rows

cdef extern from *:
    bint sub_overflows "__builtin_sub_overflow"(int64_t, int64_t, int64_t *) noexcept nogil

cdef extern from "Python.h":
    object PyByteArray_FromStringAndSize(const char *, Py_ssize_t)

include "_number_writing.pxi"

cdef enum:
    MARKS_AT_MOST = 16
    LISTS_AT_MOST = 4


# --- columns --------------------------------------------------------------------------------------------------------


cdef struct Column:
    bint there
    Py_ssize_t rows
    Py_ssize_t first
    const uint8_t *valid
    const int32_t *numbers  # offsets, or the numbers themselves
    const uint8_t *data
    Py_ssize_t data_bytes


cdef const uint8_t *address(buffer, Py_ssize_t needed, str what) except? NULL:
    """The address of a buffer of at least `needed` bytes. Its owner keeps it alive, and nobody writes to it."""
    cdef const uint8_t[::1] view = buffer
    if view.shape[0] < needed:
        raise ValueError(f"a column of {what} has {view.shape[0]} bytes, but needs {needed}")
    return &view[0] if view.shape[0] else NULL


cdef int open_column(Column *to, column, str what, bint blobs) except -1:
    to.there = column is not None
    if not to.there:
        return 0
    to.rows = column.rows
    to.first = column.first
    if to.rows < 0 or to.first < 0 or to.rows > INT32_MAX or to.first > INT32_MAX:
        raise ValueError(f"a column of {what} has {to.rows} rows from {to.first} on")
    cdef Py_ssize_t end = to.first + to.rows
    to.valid = NULL
    if column.valid is not None:
        to.valid = address(column.valid, (end + 7) // 8, "bits")
    to.data = NULL
    to.data_bytes = 0
    if blobs:
        to.numbers = <const int32_t *> address(column.offsets, 4 * (end + 1), "offsets")
        to.data = address(column.data, 0, "bytes")
        to.data_bytes = len(memoryview(column.data).cast("B"))
    else:
        to.numbers = <const int32_t *> address(column.data, 4 * end, "numbers")
    return 0


cdef inline bint is_valid(const Column *column, Py_ssize_t row) noexcept:
    cdef Py_ssize_t at = column.first + row
    return column.valid == NULL or (column.valid[at >> 3] >> (at & 7)) & 1


cdef inline Py_ssize_t blob_at(const Column *column, Py_ssize_t row, const uint8_t **found) except? -2:
    """The size of a row's bytes, and their position in `found`; -1 for null, or if there is no such column."""
    if not column.there or not is_valid(column, row):
        return -1
    cdef int32_t low = column.numbers[column.first + row]
    cdef int32_t high = column.numbers[column.first + row + 1]
    if low < 0 or high < low or high > column.data_bytes:
        raise ValueError(f"row {row} has bytes {low} to {high} of {column.data_bytes}")
    found[0] = column.data + low
    return high - low


# --- slots ----------------------------------------------------------------------------------------------------------


cdef inline uint32_t murmur2(const uint8_t *key, Py_ssize_t size) noexcept:
    cdef uint32_t multiplier = 0x5BD1E995
    cdef uint32_t mixed = <uint32_t> 0x9747B28C ^ <uint32_t> size
    cdef uint32_t word
    cdef Py_ssize_t at, whole = size & ~3
    for at in range(0, whole, 4):
        memcpy(&word, key + at, 4)
        word *= multiplier
        word ^= word >> 24
        mixed = (mixed * multiplier) ^ (word * multiplier)
    if size - whole == 3:
        mixed ^= <uint32_t> key[whole + 2] << 16
    if size - whole >= 2:
        mixed ^= <uint32_t> key[whole + 1] << 8
    if size - whole >= 1:
        mixed = (mixed ^ key[whole]) * multiplier
    mixed ^= mixed >> 13
    mixed *= multiplier
    return mixed ^ (mixed >> 15)


def assign_slots(Py_ssize_t rows, keys, partitions, topics, firsts, counts, sticky):
    """The slot of every row, 32 bits each: the first slot of its topic plus its partition."""
    cdef Column key_column, partition_column, topic_column
    open_column(&key_column, keys, "keys", True)
    open_column(&partition_column, partitions, "partitions", False)
    open_column(&topic_column, topics, "topics", False)
    for column in (keys, partitions, topics):
        if column is not None and column.rows < rows:
            raise ValueError(f"a column has {column.rows} rows, but there are {rows}")
    if min(counts, default=1) < 1:
        raise ValueError("a topic without partitions")
    cdef Py_ssize_t topic_count = len(counts), turn
    cdef int32_t *plan = <int32_t *> PyMem_Malloc(12 * topic_count + 1)
    if plan == NULL:
        raise MemoryError
    cdef int32_t *first_of = plan
    cdef int32_t *count_of = plan + topic_count
    cdef int32_t *sticky_of = plan + 2 * topic_count
    out = PyByteArray_FromStringAndSize(NULL, 4 * rows)
    cdef int32_t *slots = <int32_t *> PyByteArray_AS_STRING(out)
    cdef const uint8_t *key = NULL
    cdef Py_ssize_t row, size
    cdef int32_t topic, partition
    try:
        for turn in range(topic_count):
            first_of[turn], count_of[turn], sticky_of[turn] = firsts[turn], counts[turn], sticky[turn]
        for row in range(rows):
            topic = 0
            if topic_column.there:
                topic = topic_column.numbers[topic_column.first + row] if is_valid(&topic_column, row) else -1
            if topic < 0 or topic >= topic_count:
                raise ValueError(f"row {row} has no topic")
            if partition_column.there and is_valid(&partition_column, row):
                partition = partition_column.numbers[partition_column.first + row]
                if partition < 0 or partition >= count_of[topic]:
                    raise ValueError(f"row {row} asks for partition {partition} of {count_of[topic]}")
            else:
                size = blob_at(&key_column, row, &key)
                if size < 0:
                    partition = sticky_of[topic]
                else:
                    partition = <int32_t> ((murmur2(key, size) & 0x7FFFFFFF) % <uint32_t> count_of[topic])
            slots[row] = first_of[topic] + partition
    finally:
        PyMem_Free(plan)
    return out


def order_by_slot(slots, Py_ssize_t slot_count):
    """Row numbers, 32 bits each, sorted by slot (stable); and for each slot the position of its first row in them, then
    the total."""
    cdef Py_ssize_t rows = len(memoryview(slots).cast("B")) // 4
    cdef const int32_t *slot_of = <const int32_t *> address(slots, 4 * rows, "slots")
    cdef list bounds = []
    cdef Py_ssize_t row, slot, total = 0, held
    out = PyByteArray_FromStringAndSize(NULL, 4 * rows)
    cdef int32_t *order = <int32_t *> PyByteArray_AS_STRING(out)
    cdef Py_ssize_t *next_of = <Py_ssize_t *> PyMem_Malloc(sizeof(Py_ssize_t) * (slot_count + 1))
    if next_of == NULL:
        raise MemoryError
    try:
        for slot in range(slot_count):
            next_of[slot] = 0
        for row in range(rows):
            if slot_of[row] < 0 or slot_of[row] >= slot_count:
                raise ValueError(f"slot {slot_of[row]} of {slot_count}")
            next_of[slot_of[row]] += 1
        for slot in range(slot_count):
            bounds.append(total)
            held = next_of[slot]
            next_of[slot] = total
            total += held
        bounds.append(total)
        for row in range(rows):
            order[next_of[slot_of[row]]] = <int32_t> row
            next_of[slot_of[row]] += 1
    finally:
        PyMem_Free(next_of)
    return out, bounds


# --- records --------------------------------------------------------------------------------------------------------


cdef struct Lists:
    Column lists
    Column names
    Column contents


cdef struct Source:
    Py_ssize_t rows
    const int64_t *times
    Column keys
    Column values
    Py_ssize_t list_count
    Lists headers[LISTS_AT_MOST]
    Py_ssize_t mark_count
    const uint8_t *mark_names[MARKS_AT_MOST]
    Py_ssize_t mark_name_bytes[MARKS_AT_MOST]
    Column marks[MARKS_AT_MOST]


cdef int open_source(Source *to, rows) except -1:
    if type(rows) is not Rows:
        raise TypeError(f"{type(rows).__name__} is not Rows")
    to.rows = rows.rows
    if to.rows < 0 or to.rows > INT32_MAX:
        raise ValueError(f"{to.rows} rows")
    to.times = <const int64_t *> address(rows.times, 8 * to.rows, "times")
    open_column(&to.keys, rows.keys, "keys", True)
    open_column(&to.values, rows.values, "values", True)
    to.list_count = len(rows.headers)
    if to.list_count > LISTS_AT_MOST:
        raise ValueError(f"{to.list_count} columns of headers, but the limit is {LISTS_AT_MOST}")
    cdef Py_ssize_t turn
    for turn in range(to.list_count):
        open_lists(&to.headers[turn], rows.headers[turn])
        check_rows(&to.headers[turn].lists, to.rows)
    check_rows(&to.keys, to.rows)
    check_rows(&to.values, to.rows)
    to.mark_count = len(rows.marks)
    if to.mark_count > MARKS_AT_MOST:
        raise ValueError(f"{to.mark_count} marks, but the limit is {MARKS_AT_MOST}")
    for turn in range(to.mark_count):
        name, column = rows.marks[turn]
        to.mark_names[turn] = address(name, 0, "names")
        to.mark_name_bytes[turn] = len(name)
        open_column(&to.marks[turn], column, "marks", True)
        check_rows(&to.marks[turn], to.rows)
    return 0


cdef int open_lists(Lists *to, headers) except -1:
    # The bytes are in the two child columns; only the offsets are needed here.
    open_column(&to.lists, Blobs(headers.rows, headers.offsets, b"", headers.valid, headers.first), "lists", True)
    open_column(&to.names, headers.names, "names", True)
    open_column(&to.contents, headers.contents, "contents", True)
    return 0


cdef inline int check_rows(const Column *column, Py_ssize_t rows) except -1:
    if column.there and column.rows < rows:
        raise ValueError(f"a column has {column.rows} rows, but there are {rows}")
    return 0


cdef inline Py_ssize_t sized(Py_ssize_t size) noexcept:
    """The encoded size of a blob, with its length prefix; a size of -1 is null."""
    return 1 if size < 0 else number_bytes(size) + size


cdef inline uint8_t *put_blob(uint8_t *at, const uint8_t *blob, Py_ssize_t size) noexcept:
    at = put_number(at, size)
    if size > 0:
        memcpy(at, blob, size)
        at += size
    return at


cdef inline int header_range(const Lists *headers, Py_ssize_t row, int32_t *low, int32_t *high) except -1:
    low[0] = high[0] = 0
    if not is_valid(&headers.lists, row):
        return 0
    low[0] = headers.lists.numbers[headers.lists.first + row]
    high[0] = headers.lists.numbers[headers.lists.first + row + 1]
    cdef Py_ssize_t children = min(headers.names.rows, headers.contents.rows)
    if low[0] < 0 or high[0] < low[0] or high[0] > children:
        raise ValueError(f"row {row} has headers {low[0]} to {high[0]} of {children}")
    return 0


cdef Py_ssize_t header_count(const Source *source, Py_ssize_t row) except -1:
    cdef int32_t low, high
    cdef Py_ssize_t count = 0, turn
    for turn in range(source.list_count):
        header_range(&source.headers[turn], row, &low, &high)
        count += high - low
    for turn in range(source.mark_count):
        if is_valid(&source.marks[turn], row):
            count += 1
    return count


cdef Py_ssize_t headers_bytes(const Source *source, Py_ssize_t row) except -1:
    """The encoded size of a row's headers, with their count. Checks each, so that writing them cannot fail."""
    cdef const uint8_t *found = NULL
    cdef const Lists *headers
    cdef int32_t low, high
    cdef Py_ssize_t size, total = number_bytes(header_count(source, row)), turn, child
    for turn in range(source.list_count):
        headers = &source.headers[turn]
        header_range(headers, row, &low, &high)
        for child in range(low, high):
            size = blob_at(&headers.names, child, &found)
            if size < 0:
                raise ValueError(f"row {row} has a header without a key")
            total += sized(size) + sized(blob_at(&headers.contents, child, &found))
    for turn in range(source.mark_count):
        size = blob_at(&source.marks[turn], row, &found)
        if size >= 0:
            total += sized(source.mark_name_bytes[turn]) + sized(size)
    return total


cdef Py_ssize_t body_bytes(const Source *source, Py_ssize_t row, int64_t time_delta, int64_t delta) except -1:
    """The size of a record without its length prefix."""
    cdef const uint8_t *found = NULL
    cdef Py_ssize_t size = 1 + number_bytes(time_delta) + number_bytes(delta)
    size += sized(blob_at(&source.keys, row, &found)) + sized(blob_at(&source.values, row, &found))
    if source.list_count or source.mark_count:
        return size + headers_bytes(source, row)
    return size + 1


cdef uint8_t *put_headers(uint8_t *at, const Source *source, Py_ssize_t row) except NULL:
    cdef const uint8_t *found = NULL
    cdef const Lists *headers
    cdef int32_t low, high
    cdef Py_ssize_t size, turn, child
    at = put_number(at, header_count(source, row))
    for turn in range(source.list_count):
        headers = &source.headers[turn]
        header_range(headers, row, &low, &high)
        for child in range(low, high):
            size = blob_at(&headers.names, child, &found)
            at = put_blob(at, found, size)
            size = blob_at(&headers.contents, child, &found)
            at = put_blob(at, found, size)
    for turn in range(source.mark_count):
        size = blob_at(&source.marks[turn], row, &found)
        if size >= 0:
            at = put_blob(at, source.mark_names[turn], source.mark_name_bytes[turn])
            at = put_blob(at, found, size)
    return at


cdef uint8_t *put_record(
    uint8_t *at, const Source *source, Py_ssize_t row, Py_ssize_t body, int64_t time_delta, int64_t delta
) except NULL:
    cdef const uint8_t *found = NULL
    cdef Py_ssize_t size
    at = put_number(at, body)
    at[0] = 0
    at = put_number(at + 1, time_delta)
    at = put_number(at, delta)
    size = blob_at(&source.keys, row, &found)
    at = put_blob(at, found, size)
    size = blob_at(&source.values, row, &found)
    at = put_blob(at, found, size)
    if source.list_count or source.mark_count:
        return put_headers(at, source, row)
    at[0] = 0
    return at + 1


def append_rows(
    bytearray section not None,
    rows,
    order,
    Py_ssize_t start,
    Py_ssize_t stop,
    int64_t delta,
    int64_t base_timestamp,
    Py_ssize_t limit_bytes,
):
    """Append the rows order[start:stop] to the records of a batch; the first has offset delta `delta`. Stops before the
    row that would make the batch longer than `limit_bytes`, unless it is the batch's first.

    Returns how many rows were added, and their latest timestamp.
    """
    cdef Source source
    open_source(&source, rows)
    cdef Py_ssize_t ordered = len(memoryview(order).cast("B")) // 4
    cdef const int32_t *row_at = <const int32_t *> address(order, 4 * ordered, "row numbers")
    if start < 0 or stop < start or stop > ordered:
        raise ValueError(f"rows {start} to {stop} of {ordered}")
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(section), total = before, turn, row, size, end = stop
    cdef int64_t time_delta = 0, latest = INT64_MIN
    cdef Py_ssize_t *sizes = <Py_ssize_t *> PyMem_Malloc(sizeof(Py_ssize_t) * (stop - start + 1))
    if sizes == NULL:
        raise MemoryError
    cdef uint8_t *at
    try:
        for turn in range(start, stop):
            row = row_at[turn]
            if row < 0 or row >= source.rows:
                raise ValueError(f"row {row} of {source.rows}")
            if sub_overflows(source.times[row], base_timestamp, &time_delta):
                raise ValueError(f"timestamp {source.times[row]} does not fit a batch that starts at {base_timestamp}")
            size = body_bytes(&source, row, time_delta, delta + turn - start)
            if delta + turn - start and total + number_bytes(size) + size > limit_bytes:
                end = turn
                break
            sizes[turn - start] = size
            total += number_bytes(size) + size
            latest = max(latest, source.times[row])
        PyByteArray_Resize(section, total)
        at = <uint8_t *> PyByteArray_AS_STRING(section) + before
        for turn in range(start, end):
            row = row_at[turn]
            at = put_record(
                at, &source, row, sizes[turn - start], source.times[row] - base_timestamp, delta + turn - start
            )
    finally:
        PyMem_Free(sizes)
    return end - start, latest
