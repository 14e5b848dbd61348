# cython: language_level=3
"""Many files synced in one call, without the interpreter's lock in between.

A thread that syncs file after file from Python takes the lock back after each of them, and the event loop waits for it
every time. Here the disk is first told of all that is to be written, and then waited for file by file: their data is on
its way together, and one commit of the file system's journal does for many of them, which takes less than half the time.

world/disk.py calls this where it could be built, and does the same file by file elsewhere.
"""

from libc.errno cimport EINTR, errno
from libc.stdlib cimport free, malloc
from posix.unistd cimport fdatasync

cdef extern from "fcntl.h" nogil:
    int sync_file_range(int descriptor, long long offset, long long size, unsigned int flags)
    const unsigned int SYNC_FILE_RANGE_WRITE


def sync_all(list descriptors):
    """One errno for each descriptor; 0 where its contents and size are on stable storage."""
    cdef Py_ssize_t count = len(descriptors), i
    cdef int *numbers = <int *>malloc(max(count, 1) * sizeof(int))
    if numbers == NULL:
        raise MemoryError
    try:
        for i in range(count):
            numbers[i] = descriptors[i]
        with nogil:
            for i in range(count):
                sync_file_range(numbers[i], 0, 0, SYNC_FILE_RANGE_WRITE)  # what fails here fails again below
            for i in range(count):
                numbers[i] = _sync(numbers[i])
        return [numbers[i] for i in range(count)]
    finally:
        free(numbers)


cdef int _sync(int descriptor) noexcept nogil:
    while fdatasync(descriptor) != 0:
        if errno != EINTR:
            return errno
    return 0
