"""A few large buffers that connections borrow for large frames and give back with their memory warm.

Owned by the listener, used by its connections. One is made only when a large frame comes and none is free, up to a
fixed number: a start does not wait for memory to be cleared, and a broker of small requests never holds any.
"""

from __future__ import annotations

SPARE_BYTES = 2 << 20


class SpareBuffers:
    def __init__(self, most: int) -> None:
        self.free: list[bytearray] = []  # each of SPARE_BYTES
        self._unmade = most

    def borrow(self) -> bytearray | None:
        """None when as many as there may be are out."""
        if self.free:
            return self.free.pop()
        if not self._unmade:
            return None
        self._unmade -= 1
        return bytearray(SPARE_BYTES)

    def give_back(self, buffer: bytearray) -> None:
        self.free.append(buffer)
