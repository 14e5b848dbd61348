"""A few large buffers for data that is read from disk and sent, reused as soon as they have no more views.

Owned by the disk. Fresh memory for a megabyte costs as much as reading it: the kernel zeroes every page, and Python
zeroes it once more. Buffers are not returned explicitly: the borrower holds a view of the buffer, and Python refuses to
resize a bytearray while it has views, so a buffer that can be resized is free.
"""

from __future__ import annotations

import threading

WARM_BYTES = 1 << 20  # what a consumer with default settings requests from one partition
_LEAST_BYTES = 32 << 10  # below this, fresh memory is cheap


class WarmBuffers:
    def __init__(self, most: int) -> None:
        self._most = most
        self._buffers: list[bytearray] = []
        self._lock = threading.Lock()

    def lend(self, size: int) -> bytearray | memoryview:
        """A buffer of this many bytes with arbitrary content; a fresh one if all warm ones are in use."""
        if not _LEAST_BYTES <= size <= WARM_BYTES:
            return bytearray(size)
        with self._lock:
            for buffer in self._buffers:
                try:
                    buffer.append(buffer.pop())
                except BufferError:  # somebody has a view of it
                    continue
                return memoryview(buffer)[:size]
            if len(self._buffers) == self._most:
                return bytearray(size)
            self._buffers.append(bytearray(WARM_BYTES))
            return memoryview(self._buffers[-1])[:size]
