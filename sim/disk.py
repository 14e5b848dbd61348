"""A disk that can crash: synced data survives, everything else is lost, kept, or torn at random.

Passes the same contract tests as the real one (tests/contract/test_disk_contract.py). A file has the contents that the
running process sees, the contents that are on stable storage, and the writes in between. A folder has the same for
names. What may remain after a crash:

- of each unsynced write nothing, all, or some of its sectors (512 bytes). Each write survives independently, so a later
  one may survive while an earlier one is lost, but they are never applied in another order;
- of each folder's unsynced name changes any number from the first on, a rename counting as one. Journaling file
  systems keep that order, and no more is assumed;
- a file whose name did not survive is gone, even if its contents were synced.

Faults on request: `fail_syncs` (EIO; the unsynced writes are then dropped, as a kernel does), `room_bytes` (ENOSPC
after a short write), `opens_left` (EMFILE for what needs a descriptor), `cold` (nothing is cached), `flip_bit`.
Everything runs inline, on one thread.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from headrace.world.disk import Buffer, File

SECTOR_BYTES = 512
_SLOWEST_WORK_S = 0.005
T = TypeVar("T")


class Inode:
    """One file's contents."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.unsynced: list[tuple[int, bytes] | int] = []  # writes as (position, bytes), truncations as a size

    def write(self, position: int, data: bytes) -> None:
        _write_into(self.data, position, data)
        self.unsynced.append((position, data))

    def truncate(self, size: int) -> None:
        _resize(self.data, size)
        self.unsynced.append(size)

    def sync(self) -> None:
        self.durable = bytearray(self.data)
        self.unsynced.clear()

    def crash(self, rng: random.Random) -> None:
        for change in self.unsynced:
            fate = rng.random()
            if fate < 0.4:
                continue
            if isinstance(change, int):
                _resize(self.durable, change)
            elif fate < 0.7:
                _write_into(self.durable, *change)
            else:
                for position, sector in _sectors(*change):
                    if rng.random() < 0.5:
                        _write_into(self.durable, position, sector)
        self.data = bytearray(self.durable)
        self.unsynced.clear()


class Folder:
    """One folder's names."""

    def __init__(self) -> None:
        self.names: dict[str, Inode | Folder] = {}
        self.durable: dict[str, Inode | Folder] = {}
        self.unsynced: list[Callable[[dict[str, Inode | Folder]], object]] = []

    def change(self, change: Callable[[dict[str, Inode | Folder]], object]) -> None:
        change(self.names)
        self.unsynced.append(change)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.unsynced.clear()

    def crash(self, rng: random.Random) -> None:
        for change in self.unsynced[: rng.randint(0, len(self.unsynced))]:
            change(self.durable)
        self.names = dict(self.durable)
        self.unsynced.clear()
        for node in self.names.values():
            node.crash(rng)


class SimFile:
    def __init__(self, disk: SimDisk, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode
        self._life = disk.life

    def append(self, buffers: Sequence[Buffer]) -> None:
        self._check()
        self._write(b"".join(buffers), len(self._inode.data))

    def pread(self, size: int, position: int) -> bytes:
        self._check()
        return bytes(self._inode.data[position : position + size])

    def pread_cached(self, size: int, position: int) -> bytes | None:
        return None if self._disk.cold else self.pread(size, position)

    borrow_cached = pread_cached

    def pwrite(self, data: Buffer, position: int) -> None:
        self._check()
        self._write(bytes(data), position)

    def size(self) -> int:
        self._check()
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._check()
        self._disk.take_room(size - len(self._inode.data))
        self._inode.truncate(size)

    def sync(self) -> None:
        self._check()
        if self._disk.fail_syncs > 0:
            self._disk.fail_syncs -= 1
            self._inode.unsynced.clear()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._inode.sync()

    def close(self) -> None:
        self._life = -1

    def _write(self, data: bytes, position: int) -> None:
        grows = max(0, position + len(data) - len(self._inode.data))
        missing = self._disk.take_room(grows, partly=True)
        self._inode.write(position, data[: len(data) - missing])
        if missing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _check(self) -> None:
        if self._life != self._disk.life:
            raise OSError(errno.EBADF, "the file is closed, or its computer crashed")


class SimDisk:
    def __init__(self, delays: random.Random | None = None) -> None:
        """With `delays`, work off the loop takes a random time drawn from them."""
        self.life = 0
        self.cold = False
        self.fail_syncs = 0
        self.room_bytes: int | None = None
        self.opens_left: int | None = None
        self._root = Folder()
        self._locks: set[Path] = set()
        self._delays = delays

    # -- faults -------------------------------------------------------------------------------------------------------

    def crash(self, rng: random.Random) -> None:
        """Power is lost and comes back: open files become invalid, locks are released."""
        self.life += 1
        self._locks.clear()
        self._root.crash(rng)

    def process_died(self) -> None:
        """The process has ended: its files are closed and its locks released; what it wrote is kept."""
        self.life += 1
        self._locks.clear()

    def flip_bit(self, path: Path, bit: int) -> None:
        inode = self._inode(path)
        for data in (inode.data, inode.durable):
            if bit // 8 < len(data):
                data[bit // 8] ^= 1 << bit % 8

    def take_room(self, size: int, *, partly: bool = False) -> int:
        """Count `size` more bytes against the free space; returns how many of them do not fit."""
        if self.room_bytes is None:
            return 0
        missing = max(0, size - max(0, self.room_bytes))
        if missing and not partly:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room_bytes -= size - missing
        return missing

    def _take_descriptor(self, path: Path) -> None:
        if self.opens_left is not None:
            if self.opens_left <= 0:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
            self.opens_left -= 1

    # -- Disk ---------------------------------------------------------------------------------------------------------

    def open(self, path: Path, *, create: bool = False) -> File:
        self._take_descriptor(path)
        folder = self._folder(path.parent)
        node = folder.names.get(path.name)
        if node is None:
            if not create:
                raise _missing(path)
            self.take_room(1)
            fresh = node = Inode()
            folder.change(lambda names: names.__setitem__(path.name, fresh))
        if isinstance(node, Folder):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return SimFile(self, node)

    def exists(self, path: Path) -> bool:
        try:
            return path == path.parent or path.name in self._folder(path.parent).names
        except (FileNotFoundError, NotADirectoryError):
            return False

    def list_dir(self, path: Path) -> list[str]:
        self._take_descriptor(path)
        return list(self._folder(path).names)

    def make_dirs(self, path: Path) -> None:
        folder = self._root
        for name in path.parts[1:]:
            node = folder.names.get(name)
            if node is None:
                node = Folder()
                folder.change(lambda names, name=name, node=node: names.__setitem__(name, node))  # type: ignore[misc]
            if not isinstance(node, Folder):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            folder = node

    def rename(self, source: Path, target: Path) -> None:
        folder = self._folder(source.parent)
        if source.name not in folder.names:
            raise _missing(source)
        if source.parent != target.parent:
            raise OSError(errno.EXDEV, "this disk renames within a folder only")
        folder.change(lambda names: names.__setitem__(target.name, names.pop(source.name)))

    def remove(self, path: Path) -> None:
        folder = self._folder(path.parent)
        if path.name in folder.names:
            folder.change(lambda names: names.pop(path.name))

    def remove_tree(self, path: Path) -> None:
        if self.exists(path):
            self._folder(path.parent).change(lambda names: names.pop(path.name))

    def sync_files(self, files: Sequence[File]) -> list[OSError | None]:
        return [_sync_problem(file) for file in files]

    def sync_dir(self, path: Path) -> None:
        self._take_descriptor(path)
        self._folder(path).sync()

    def read_bytes(self, path: Path) -> bytes:
        self._take_descriptor(path)
        return bytes(self._inode(path).data)

    def write_atomic(self, path: Path, data: Buffer) -> None:
        fresh = path.with_name(path.name + ".tmp")
        file = self.open(fresh, create=True)
        file.truncate(0)
        file.append((data,))
        file.sync()
        file.close()
        self.rename(fresh, path)
        self.sync_dir(path.parent)

    def file_size(self, path: Path) -> int:
        return len(self._inode(path).data)

    def free_bytes(self, path: Path) -> int:
        self._folder(path)
        return 1 << 40 if self.room_bytes is None else self.room_bytes

    def total_bytes(self, path: Path) -> int:
        self._folder(path)
        return 1 << 41

    def lock(self, path: Path) -> Callable[[], None] | None:
        if path in self._locks:
            return None
        self.open(path, create=True).close()
        self._locks.add(path)
        return lambda: self._locks.discard(path)

    async def off_loop(self, work: Callable[..., T], *args: object) -> T:
        await asyncio.sleep(0 if self._delays is None else self._delays.uniform(0, _SLOWEST_WORK_S))
        return work(*args)

    # -- names --------------------------------------------------------------------------------------------------------

    def _folder(self, path: Path) -> Folder:
        folder = self._root
        for name in path.parts[1:]:
            node = folder.names.get(name)
            if node is None:
                raise _missing(path)
            if not isinstance(node, Folder):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
            folder = node
        return folder

    def _inode(self, path: Path) -> Inode:
        node = self._folder(path.parent).names.get(path.name)
        if node is None:
            raise _missing(path)
        if isinstance(node, Folder):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return node


def _missing(path: Path) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


def _write_into(target: bytearray, position: int, data: bytes) -> None:
    if position > len(target):
        _resize(target, position)
    target[position : position + len(data)] = data


def _resize(target: bytearray, size: int) -> None:
    if size < len(target):
        del target[size:]
    else:
        target.extend(bytes(size - len(target)))


def _sectors(position: int, data: bytes) -> list[tuple[int, bytes]]:
    """The write, split into pieces that a disk writes atomically."""
    pieces: list[tuple[int, bytes]] = []
    at = 0
    while at < len(data):
        stop = min(len(data), at + SECTOR_BYTES - (position + at) % SECTOR_BYTES)
        pieces.append((position + at, data[at:stop]))
        at = stop
    return pieces


def _sync_problem(file: File) -> OSError | None:
    try:
        file.sync()
    except OSError as error:
        return error
    return None
