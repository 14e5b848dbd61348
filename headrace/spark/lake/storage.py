"""The storage of a lake: a local folder, or any address that pyarrow supports (s3://, gs://, hdfs://).

Owns every read and write of lake files; the driver and each executor open their own from the lake's address. Invariant:
`put` is atomic, so a listed file is complete. A folder is also synced to the disk before `put` returns.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from headrace.model.failure import Failure
from headrace.world.disk import Buffer, RealDisk


class Storage(Protocol):
    """Names are relative to the lake, with slashes."""

    def put(self, name: str, data: Buffer) -> None:
        """Write a file atomically."""
        ...

    def read(self, name: str) -> bytes:
        """The contents of a file; FileNotFoundError if there is none."""
        ...

    def names(self, folder: str) -> list[str]:
        """The sorted names directly in a folder; empty if there is no such folder."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        ...

    def open(self, name: str) -> Any:
        """The file for pyarrow, for random access."""
        ...

    def uri(self, name: str) -> str:
        """The address of the file for other programs."""
        ...

    def lock(self) -> Callable[[], None] | None:
        """Lock out other writers; returns the function that unlocks, or None if another writer has the lock."""
        ...


class Folder:
    """A lake in a local folder."""

    def __init__(self, root: Path, disk: RealDisk) -> None:
        self._root = root
        self._disk = disk

    def put(self, name: str, data: Buffer) -> None:
        path = self._root / name
        self._disk.make_dirs(path.parent)
        self._disk.write_atomic(path, data)

    def read(self, name: str) -> bytes:
        return self._disk.read_bytes(self._root / name)

    def names(self, folder: str) -> list[str]:
        try:
            found = self._disk.list_dir(self._root / folder)
        except FileNotFoundError:
            return []
        return sorted(name for name in found if not name.endswith(".tmp"))  # left by an interrupted write_atomic

    def remove(self, name: str) -> None:
        self._disk.remove(self._root / name)

    def open(self, name: str) -> Any:
        from pyarrow import OSFile

        return OSFile(str(self._root / name), "rb")

    def uri(self, name: str) -> str:
        return str(self._root / name)

    def lock(self) -> Callable[[], None] | None:
        self._disk.make_dirs(self._root)
        return self._disk.lock(self._root / "writer.lock")


class ObjectStore:
    """A lake in an object store, through pyarrow. A put is one request there, and so atomic.

    Object stores have no locks, so the user must make sure that only one archive pipeline writes to a lake.
    """

    def __init__(self, address: str, filesystem: Any, root: str) -> None:
        self._address = address.rstrip("/")
        self._filesystem = filesystem
        self._root = root.rstrip("/")

    def put(self, name: str, data: Buffer) -> None:
        path = f"{self._root}/{name}"
        self._filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        with self._filesystem.open_output_stream(path) as stream:
            stream.write(data)

    def read(self, name: str) -> bytes:
        with self._filesystem.open_input_stream(f"{self._root}/{name}") as stream:
            return bytes(stream.read())

    def names(self, folder: str) -> list[str]:
        from pyarrow.fs import FileSelector

        found = self._filesystem.get_file_info(FileSelector(f"{self._root}/{folder}", allow_not_found=True))
        return sorted(info.base_name for info in found)

    def remove(self, name: str) -> None:
        try:
            self._filesystem.delete_file(f"{self._root}/{name}")
        except FileNotFoundError:
            pass

    def open(self, name: str) -> Any:
        return self._filesystem.open_input_file(f"{self._root}/{name}")

    def uri(self, name: str) -> str:
        return f"{self._address}/{name}"

    def lock(self) -> Callable[[], None] | None:
        return lambda: None


def open_storage(address: str) -> Storage:
    """The storage at an address: a path, file:///path, or an address of an object store."""
    parts = urlsplit(address)
    if parts.scheme in ("", "file"):
        path = Path(unquote(parts.path) if parts.scheme else address)
        return Folder(path.absolute(), RealDisk())
    from pyarrow import ArrowInvalid, ArrowNotImplementedError
    from pyarrow.fs import FileSystem

    try:
        filesystem, root = FileSystem.from_uri(address)
    except (ArrowInvalid, ArrowNotImplementedError) as error:
        raise Failure(
            f"{address} cannot store a lake: write a folder, or an address such as s3://bucket/lake ({error})"
        ) from None
    return ObjectStore(address, filesystem, root)
