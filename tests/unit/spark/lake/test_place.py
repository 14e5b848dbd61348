"""A folder and an object store are the same kind of place."""

from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem

from headrace.model.failure import Failure
from headrace.spark.lake.place import Folder, Place, Store, open_place
from headrace.world.disk import RealDisk


@pytest.fixture(params=["folder", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        return Folder(tmp_path, RealDisk())
    return Store(f"file://{tmp_path}", LocalFileSystem(), str(tmp_path))


def test_what_is_put_is_listed_read_and_removed(place: Place) -> None:
    assert place.names("deep") == []
    place.put("deep/down/b.json", b"two")
    place.put("deep/down/a.json", memoryview(b"one"))
    place.put("deep/down/a.json", b"one again")
    assert place.names("deep/down") == ["a.json", "b.json"]
    assert place.read("deep/down/a.json") == b"one again"
    with place.open("deep/down/b.json") as file:
        assert file.read() == b"two"
    place.remove("deep/down/a.json")
    place.remove("deep/down/a.json")
    assert place.names("deep/down") == ["b.json"]
    with pytest.raises(FileNotFoundError):
        place.read("deep/down/a.json")


def test_an_address_finds_its_place(tmp_path: Path) -> None:
    for address in (str(tmp_path), f"file://{tmp_path}"):
        open_place(address).put("x/y", b"z")
        assert open_place(address).uri("x/y") == str(tmp_path / "x" / "y")
    with pytest.raises(Failure, match="nowhere://x is no place for a lake"):
        open_place("nowhere://x")
