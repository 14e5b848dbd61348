"""A few large buffers for what is read from disk and sent away, used again as soon as nobody looks at them.

Owned by the disk. Fresh memory for a megabyte costs as much as reading it: the system clears every page, and Python
clears it once more. Nobody gives a buffer back: whoever was lent one holds a view of it, and Python itself refuses to
resize a bytearray while there is one, so a buffer that can be resized is free.
"""

from __future__ import annotations

import threading

WARM_BYTES = 1 << 20  # what a stock consumer asks for of one partition
_LEAST_BYTES = 32 << 10  # below this, fresh memory is cheap


class WarmBuffers:
    def __init__(self, most: int) -> None:
        self._most = most
        self._buffers: list[bytearray] = []
        self._lock = threading.Lock()

    def lend(self, size: int) -> bytearray | memoryview:
        """Room for so many bytes; what is in it is anything. A fresh buffer when all warm ones are out."""
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
