"""Makes free memory cheap to use before a measurement that writes.

Called before each measurement that writes. Where the host of a virtual machine reclaims free memory, the first touch of
a page that was free for seconds costs many times what writing it does (13 microseconds each were measured), and a
broker that grows the page cache pays for it. So as much memory as the next work needs is allocated, touched and freed
right before: the kernel reuses the latest freed pages first. Dirty pages are flushed before that, so that no peer pays
for those of another.
"""

from __future__ import annotations

import mmap
import os

NEEDED_BYTES = 2 << 30  # the largest work writes a quarter of that; the rest is a margin for other use meanwhile


def settle() -> None:
    """Flush dirty pages, then touch and free memory."""
    os.sync()
    with mmap.mmap(-1, NEEDED_BYTES) as memory:
        for page in range(0, NEEDED_BYTES, mmap.PAGESIZE):
            memory[page] = 1
