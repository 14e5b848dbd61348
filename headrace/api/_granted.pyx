# cython: language_level=3
"""Bytes that keep a grant: the compiled twin of _granted_py.py, without a copy.

Python 3.11 has no other way for an object to lend its memory and to know when the last view of it is gone: slices of a
memoryview do not keep the memoryview, only the object behind it.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer


@cython.final
@cython.no_gc  # it is in no cycle: what it keeps does not know it
cdef class GrantedBytes:
    cdef object grant
    cdef Py_buffer data

    def __cinit__(self, data, grant):
        PyObject_GetBuffer(data, &self.data, PyBUF_SIMPLE)
        self.grant = grant

    def __dealloc__(self):
        PyBuffer_Release(&self.data)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data.buf, self.data.len, True, flags)


def granted(data, grant):
    """These bytes, as a view; the grant lives as long as anybody has a view of them."""
    return memoryview(GrantedBytes(data, grant))
