"""Memory that the system hands out as it is written to.

For buffers whose size is known before their content has come: what is never written takes no memory, a buffer need not
grow (which would copy it), and nobody waits while it is zeroed. Used for large unfinished requests
(server/connection.py).
"""

from __future__ import annotations

import mmap
from contextlib import suppress

LazyMemory = mmap.mmap
_SMALL_PAGES_BYTES = 2 << 20  # where huge pages begin: they are faster, but the first byte in one takes two megabytes


def lazy_memory(size: int) -> LazyMemory:
    """A writable buffer of zeros. It is released with the last reference to it. OSError if there is no room for it."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a system without huge pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        if size > _SMALL_PAGES_BYTES:
            memory.madvise(mmap.MADV_HUGEPAGE, _SMALL_PAGES_BYTES)
    return memory
