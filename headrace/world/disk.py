"""Files. The only module that opens them.

`Disk` and `File` are the interfaces; `RealDisk` is the operating system's. The simulator has a disk that can crash. The
caller requests durability explicitly: data is safe after `File.sync`, a new, renamed or removed name after
`Disk.sync_dir` of its folder. Calls block; whatever may take long runs through `Disk.off_loop`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from headrace.world.threads import Threads
from headrace.world.warm_buffers import WarmBuffers

if TYPE_CHECKING:
    from headrace.world._syncing_py import sync_all
else:
    try:
        from headrace.world._syncing import sync_all
    except ImportError:
        from headrace.world._syncing_py import sync_all

Buffer = bytes | bytearray | memoryview
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LACKS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_WARM_BUFFERS = 8  # of a megabyte each, made when they are needed
T = TypeVar("T")


def is_lack(error: BaseException | None) -> bool:
    """Whether the process or the system was out of descriptors or memory. The disk has done nothing wrong then: the
    call has not begun, and may be repeated. What a failed sync raises is never such an error, whatever its cause."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _LACKS)


def what_lacks(error: BaseException) -> str:
    """For a message about a lack."""
    return (isinstance(error, OSError) and error.strerror) or "out of memory"


class File(Protocol):
    """An open file. Appends go to its end; reads and writes have an explicit position."""

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all buffers at the end with as few system calls as possible.

        Raises OSError (ENOSPC among them) when not everything was written; part of it may then be in the file, and
        the caller truncates back.
        """
        ...

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file. May wait for the disk."""
        ...

    def pread_cached(self, size: int, position: int) -> bytes | None:
        """Like `pread` if everything is in memory, otherwise None without waiting."""
        ...

    def borrow_cached(self, size: int, position: int) -> Buffer | None:
        """Like `pread_cached`, into memory that is reused once it has no more views: for data that is sent."""
        ...

    def pwrite(self, data: Buffer, position: int) -> None: ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Returns when the contents and size are on stable storage; raises OSError, which is neither a lack (`is_lack`)
        nor one of `NO_ROOM`, if this is unknown."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    def open(self, path: Path, *, create: bool = False) -> File: ...

    def exists(self, path: Path) -> bool: ...

    def list_dir(self, path: Path) -> list[str]: ...

    def make_dirs(self, path: Path) -> None: ...

    def rename(self, source: Path, target: Path) -> None: ...

    def remove(self, path: Path) -> None:
        """Remove a file, if it exists."""
        ...

    def remove_tree(self, path: Path) -> None: ...

    def sync_dir(self, path: Path) -> None:
        """Its names are on stable storage when this returns. A lack (`is_lack`) means that nothing was tried."""
        ...

    def sync_files(self, files: Sequence[File]) -> list[OSError | None]:
        """Sync each of these files of this disk, in as few calls as possible; an error as of `File.sync`, or None, for
        each. MemoryError if nothing was tried."""
        ...

    def read_bytes(self, path: Path) -> bytes:
        """The whole file; FileNotFoundError if there is none."""
        ...

    def write_atomic(self, path: Path, data: Buffer) -> None:
        """Replace the file so that after a crash it holds either the old or the new contents, whole and durable."""
        ...

    def file_size(self, path: Path) -> int: ...

    def free_bytes(self, path: Path) -> int:
        """The free space on the disk that holds this path."""
        ...

    def total_bytes(self, path: Path) -> int: ...

    def lock(self, path: Path) -> Callable[[], None] | None:
        """Take an exclusive lock that ends with the process; returns a release function, or None if it is taken."""
        ...

    async def off_loop(self, work: Callable[..., T], *args: object) -> T:
        """Run blocking work without blocking the event loop."""
        ...


class RealFile:
    __slots__ = ("_fd", "_size", "_warm")

    def __init__(self, fd: int, size: int, warm: WarmBuffers) -> None:
        self._fd = fd
        self._size = size
        self._warm = warm

    def append(self, buffers: Sequence[Buffer]) -> None:
        total = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        written = os.pwritev(self._fd, buffers, self._size)
        if written != total:
            rest = memoryview(b"".join(buffers))[written:]
            while rest:
                more = os.pwrite(self._fd, rest, self._size + written)
                if more == 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                written += more
                rest = rest[more:]
        self._size += total

    def pread(self, size: int, position: int) -> bytes:
        return os.pread(self._fd, size, position)

    def pread_cached(self, size: int, position: int) -> bytes | None:
        # A bytearray without other references serves as bytes, without a copy.
        return self._read_cached(bytearray(size), position)  # type: ignore[return-value]

    def borrow_cached(self, size: int, position: int) -> Buffer | None:
        return self._read_cached(self._warm.lend(size), position)

    def _read_cached(self, into: bytearray | memoryview, position: int) -> Buffer | None:
        try:
            got = os.preadv(self._fd, [into], position, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
                return None
            raise
        size = len(into)
        if got == size:
            return into
        if got < max(0, min(size, self._size - position)):
            return None
        return bytes(memoryview(into)[:got])

    def pwrite(self, data: Buffer, position: int) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._fd, view, position)
            view = view[written:]
            position += written
        self._size = max(self._size, position)

    def size(self) -> int:
        return self._size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._size = size

    def sync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise _contents_lost(error.errno) from None

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)


class RealDisk:
    """The operating system's files. Folders are created with mode 0700 and files with 0600: the data is private."""

    def __init__(self, threads: int = 4) -> None:
        self._threads = Threads(threads, "headrace-disk")
        self._warm = WarmBuffers(_WARM_BUFFERS)

    def open(self, path: Path, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        fd = os.open(path, flags, 0o600)
        return RealFile(fd, os.fstat(fd).st_size, self._warm)

    def exists(self, path: Path) -> bool:
        return os.path.exists(path)

    def list_dir(self, path: Path) -> list[str]:
        return os.listdir(path)

    def make_dirs(self, path: Path) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)

    def sync_dir(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _fsync(fd)
        finally:
            os.close(fd)

    def sync_files(self, files: Sequence[File]) -> list[OSError | None]:
        codes = sync_all([cast(RealFile, file).fileno() for file in files])
        return [_contents_lost(code) if code else None for code in codes]

    def read_bytes(self, path: Path) -> bytes:
        return path.read_bytes()

    def write_atomic(self, path: Path, data: Buffer) -> None:
        fresh = path.with_name(path.name + ".tmp")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            _fsync(fd)
        finally:
            os.close(fd)
        os.rename(fresh, path)
        self.sync_dir(path.parent)

    def file_size(self, path: Path) -> int:
        return os.stat(path).st_size

    def free_bytes(self, path: Path) -> int:
        return shutil.disk_usage(path).free

    def total_bytes(self, path: Path) -> int:
        return shutil.disk_usage(path).total

    def lock(self, path: Path) -> Callable[[], None] | None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return lambda: os.close(fd)

    async def off_loop(self, work: Callable[..., T], *args: object) -> T:
        return await self._threads.off_loop(work, *args)

    def close(self) -> None:
        self._threads.close()


def _fsync(fd: int) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        raise _sync_error(error.errno) from None


def _sync_error(code: int | None) -> OSError:
    """What a failed sync raises. The system may have dropped the pages that it was to write, for a lack of memory as
    for any other reason, so that must not look like a lack, after which the call may be repeated."""
    known = errno.EIO if code is None or code in _LACKS else code
    return OSError(known, os.strerror(known))


def _contents_lost(code: int | None) -> OSError:
    """For a file that is not written again as a whole: neither may a disk that was full during the sync look like one
    that refused a write, which can be repeated."""
    error = _sync_error(code)
    return OSError(errno.EIO, f"a sync failed: {error.strerror}") if error.errno in NO_ROOM else error
