"""The log room's open files: a pool that closes the one unused for longest, so that 10,000 partitions do not hold
30,000 descriptors.

A `PooledFile` is a name that can be opened. `with pooled as file:` gives the open file and pins it for the block, so
that no thread closes or renames a file under the hands of another. Closing a file with unsynced pages loses nothing:
a later `sync` through a new descriptor covers them, and Linux reports a write-back error that nobody has seen yet to
the next one who opens the file.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from headrace.world.disk import Disk, File


class FilePool:
    """Open files in the order of their last use."""

    def __init__(self, disk: Disk, capacity: int = 2048) -> None:
        self.disk = disk
        self.lock = threading.Lock()
        self.opened: OrderedDict[PooledFile, File] = OrderedDict()
        self._capacity = capacity

    def file(self, path: Path) -> PooledFile:
        return PooledFile(self, path)

    def make_room(self) -> None:
        """Called with the lock held, before one more is opened. Pinned files stay, even if that is too many."""
        while len(self.opened) >= self._capacity:
            unused = next((pooled for pooled in self.opened if not pooled.pins), None)
            if unused is None:
                return
            self.opened.pop(unused).close()

    def close(self) -> None:
        with self.lock:
            while self.opened:
                self.opened.popitem()[1].close()


class PooledFile:
    __slots__ = ("_pool", "absent", "path", "pins", "prepare")

    def __init__(self, pool: FilePool, path: Path) -> None:
        self._pool = pool
        self.path = path
        self.pins = 0
        self.absent = False  # it is made when it is first used: most partitions of a new topic stay empty for a while
        self.prepare: Callable[[], None] | None = None  # makes the folder for an absent file

    def __enter__(self) -> File:
        pool = self._pool
        with pool.lock:
            file = pool.opened.get(self)
            if file is None:
                pool.make_room()
                if self.absent and self.prepare is not None:
                    self.prepare()
                    self.prepare = None
                file = pool.opened[self] = pool.disk.open(self.path, create=self.absent)
                self.absent = False
            else:
                pool.opened.move_to_end(self)
            self.pins += 1
            return file

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._pool.lock:
            self.pins -= 1

    def create(self) -> None:
        """Make the file; one that is there already (a crash came between its making and its first use) is emptied."""
        pool = self._pool
        with pool.lock:
            pool.make_room()
            file = pool.opened[self] = pool.disk.open(self.path, create=True)
            if file.size():
                file.truncate(0)

    def rename(self, target: Path) -> None:
        """Readers that hold this object go on reading the same bytes."""
        with self:  # so that there is a file
            pass
        with self._pool.lock:
            self._pool.disk.rename(self.path, target)
            self.path = target

    def close(self) -> None:
        """Give the descriptor back now, unless somebody is using it; the pool does so later otherwise."""
        with self._pool.lock:
            if not self.pins and self in self._pool.opened:
                self._pool.opened.pop(self).close()
