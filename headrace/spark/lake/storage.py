"""Where a lake lies: a folder of this machine, or any address that pyarrow knows (s3://, gs://, hdfs://).

Owns every read and write of lake files; used by the driver and by the executors, each with a place of its own, for a
place is opened from the lake's address alone. Invariant: `put` is all or nothing, so a name that is listed holds whole
contents. A folder is also synced to the disk before `put` returns.
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
        """Write a whole file; after a crash it is there whole or not at all."""
        ...

    def read(self, name: str) -> bytes:
        """The whole file; FileNotFoundError if there is none."""
        ...

    def names(self, folder: str) -> list[str]:
        """What lies directly in a folder, sorted; nothing if there is no such folder."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file; one that is not there is fine."""
        ...

    def open(self, name: str) -> Any:
        """The file for pyarrow to read from, in pieces."""
        ...

    def uri(self, name: str) -> str:
        """The address under which other programs find the file."""
        ...

    def lock(self) -> Callable[[], None] | None:
        """Keep other writers out; the way to let them in again, or None if there is one already."""
        ...


class Folder:
    """A lake in a folder of this machine."""

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
        return sorted(name for name in found if not name.endswith(".tmp"))  # what write_atomic did not finish

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
    """A lake in an object store, through pyarrow. A put is one request there, and so all or nothing.

    Object stores have no locks: that only one archive writes to a lake is then up to who starts them.
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
    """The place at an address: a path, file:///path, or an address of an object store."""
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
            f"{address} is no place for a lake: write a folder, or an address such as s3://bucket/lake ({error})"
        ) from None
    return ObjectStore(address, filesystem, root)
