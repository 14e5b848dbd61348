"""A pool of large buffers that connections borrow for large frames, and return with their memory already paged in.

Owned by the listener, used by its connections. A buffer is allocated only when a large frame arrives and none is free,
up to a fixed number: start-up does not wait for memory to be zeroed, and a broker with small requests allocates none.
"""

from __future__ import annotations

SPARE_BYTES = 2 << 20


class SpareBuffers:
    def __init__(self, most: int) -> None:
        self.free: list[bytearray] = []  # each of SPARE_BYTES
        self._unmade = most

    def borrow(self) -> bytearray | None:
        """A buffer, or None if all are in use."""
        if self.free:
            return self.free.pop()
        if not self._unmade:
            return None
        self._unmade -= 1
        return bytearray(SPARE_BYTES)

    def give_back(self, buffer: bytearray) -> None:
        self.free.append(buffer)
