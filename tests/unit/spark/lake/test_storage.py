"""A folder and an object store are the same kind of place."""

from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem

from headrace.model.failure import Failure
from headrace.spark.lake.storage import Folder, ObjectStore, Storage, open_storage
from headrace.world.disk import RealDisk


@pytest.fixture(params=["folder", "store"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "folder":
        return Folder(tmp_path, RealDisk())
    return ObjectStore(f"file://{tmp_path}", LocalFileSystem(), str(tmp_path))


def test_what_is_put_is_listed_read_and_removed(storage: Storage) -> None:
    assert storage.names("deep") == []
    storage.put("deep/down/b.json", b"two")
    storage.put("deep/down/a.json", memoryview(b"one"))
    storage.put("deep/down/a.json", b"one again")
    assert storage.names("deep/down") == ["a.json", "b.json"]
    assert storage.read("deep/down/a.json") == b"one again"
    with storage.open("deep/down/b.json") as file:
        assert file.read() == b"two"
    storage.remove("deep/down/a.json")
    storage.remove("deep/down/a.json")
    assert storage.names("deep/down") == ["b.json"]
    with pytest.raises(FileNotFoundError):
        storage.read("deep/down/a.json")


def test_an_address_finds_its_place(tmp_path: Path) -> None:
    for address in (str(tmp_path), f"file://{tmp_path}"):
        open_storage(address).put("x/y", b"z")
        assert open_storage(address).uri("x/y") == str(tmp_path / "x" / "y")
    with pytest.raises(Failure, match="nowhere://x cannot store a lake"):
        open_storage("nowhere://x")
