"""The log room's open files: a pool that closes those unused for longest, so that 10,000 partitions do not hold 30,000
descriptors.

Every request uses a file, so a use only sets a mark. To make room the pool goes through its files in order: a marked
file loses its mark and moves to the end, and the first file without a mark is closed (the clock algorithm).

A `PooledFile` is a name that can be opened. `with pooled as file:` gives the open file and pins it for the block, so
that no thread closes or renames a file under the hands of another. Closing a file with unsynced pages loses nothing:
a later `sync` through a new descriptor covers them, and Linux reports a write-back error that nobody has seen yet to
the next one who opens the file. So if the process is out of descriptors, the pool closes some files to open another.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from headrace.world.disk import Disk, File, is_lack

_SHED = 8  # files that make way if descriptors are lacking, for the next ones too


class FilePool:
    """Open files, about in the order of their last use."""

    def __init__(self, disk: Disk, capacity: int = 2048) -> None:
        self.disk = disk
        self.lock = threading.Lock()
        self.opened: OrderedDict[PooledFile, File] = OrderedDict()
        self._capacity = capacity

    def file(self, path: Path) -> PooledFile:
        return PooledFile(self, path)

    def make_room(self) -> None:
        """Called with the lock held, before one more is opened. Pinned files stay, even if that is too many."""
        passes = 2 * len(self.opened)  # after one round no mark is left
        while len(self.opened) >= self._capacity and passes:
            passes -= 1
            pooled = next(iter(self.opened))
            if pooled.pins or pooled.used:
                pooled.used = False
                self.opened.move_to_end(pooled)
            else:
                self.let_go(pooled)

    def shed(self) -> bool:
        """Called with the lock held, when descriptors are lacking. False if every open file is pinned."""
        idle = [pooled for pooled in self.opened if not pooled.pins][:_SHED]
        for pooled in idle:
            self.let_go(pooled)
        return bool(idle)

    def let_go(self, pooled: PooledFile) -> None:
        """Called with the lock held, for one that is open."""
        pooled.opened = None
        self.opened.pop(pooled).close()

    def close(self) -> None:
        with self.lock:
            for pooled in list(self.opened):
                self.let_go(pooled)


class PooledFile:
    __slots__ = ("_pool", "absent", "opened", "path", "pins", "prepare", "used")

    def __init__(self, pool: FilePool, path: Path) -> None:
        self._pool = pool
        self.path = path
        self.opened: File | None = None  # as the pool has it
        self.used = False  # since the pool last came by
        self.pins = 0
        self.absent = False  # it is made when it is first used: most partitions of a new topic stay empty for a while
        self.prepare: Callable[[], None] | None = None  # makes the folder for an absent file

    def __enter__(self) -> File:
        with self._pool.lock:
            file = self.opened
            if file is None:
                if self.absent and self.prepare is not None:
                    self.prepare()
                    self.prepare = None
                file = self._open(create=self.absent)
                self.absent = False
            self.used = True
            self.pins += 1
            return file

    def _open(self, *, create: bool) -> File:
        pool = self._pool
        pool.make_room()
        try:
            file = pool.disk.open(self.path, create=create)
        except OSError as error:
            if not is_lack(error) or not pool.shed():
                raise
            file = pool.disk.open(self.path, create=create)
        self.opened = pool.opened[self] = file
        return file

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._pool.lock:
            self.pins -= 1

    def create(self) -> None:
        """Make the file; one that is there already (a crash came between its making and its first use) is emptied."""
        with self._pool.lock:
            file = self._open(create=True)
            if file.size():
                file.truncate(0)

    def rename(self, target: Path) -> None:
        """Readers that hold this object go on reading the same bytes."""
        if self.absent:
            with self:  # so that there is a file
                pass
        with self._pool.lock:
            self._pool.disk.rename(self.path, target)
            self.path = target

    def close(self) -> None:
        """Give the descriptor back now, unless somebody is using it; the pool does so later otherwise."""
        with self._pool.lock:
            if not self.pins and self.opened is not None:
                self._pool.let_go(self)
