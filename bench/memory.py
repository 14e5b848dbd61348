"""Memory that costs what memory costs, for who writes next.

Called before each measurement that writes. On a virtual machine whose host takes free memory back, the first touch of a
page that was free for seconds costs many times what writing it does (13 microseconds each have been seen), and a broker
that grows the page cache is charged for it. So as much memory as the next work needs is taken, touched and given back
right before: the kernel hands out first what it got last. Everything written goes to disk before that, so that nobody
pays for the dirty pages of another.
"""

from __future__ import annotations

import mmap
import os

NEEDED_BYTES = 2 << 30  # the largest work writes a quarter of that; the rest is for what is freed elsewhere meanwhile


def settle() -> None:
    """Write what is dirty, and have memory at hand."""
    os.sync()
    with mmap.mmap(-1, NEEDED_BYTES) as memory:
        for page in range(0, NEEDED_BYTES, mmap.PAGESIZE):
            memory[page] = 1
