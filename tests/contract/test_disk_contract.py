"""One contract, two disks: whatever the log room relies on holds on the operating system's and on the simulated one."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.world.disk import Disk, RealDisk
from sim.disk import SimDisk


@pytest.fixture(params=["real", "sim"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return RealDisk() if request.param == "real" else SimDisk()


@pytest.fixture
def folder(disk: Disk, tmp_path: Path) -> Path:
    path = tmp_path / "data" / "orders-0"
    disk.make_dirs(path)
    return path


def test_appends_go_to_the_end_and_reads_name_their_place(disk: Disk, folder: Path) -> None:
    file = disk.open(folder / "a", create=True)
    file.append((b"one", bytearray(b"two"), memoryview(b"three")))
    file.append((b"4",))
    assert file.size() == 12
    assert file.pread(3, 3) == b"two"
    assert file.pread(100, 6) == b"three4"
    assert file.pread(10, 50) == b""


def test_what_is_in_memory_is_read_at_once_or_not_at_all(disk: Disk, folder: Path) -> None:
    file = disk.open(folder / "a", create=True)
    file.append((b"0123456789",))
    for cached in (file.pread_cached, file.borrow_cached):
        assert cached(4, 3) in (b"3456", None)
        assert cached(100, 8) in (b"89", None)
        assert cached(5, 10) in (b"", None)


def test_a_second_opening_sees_the_same_file(disk: Disk, folder: Path) -> None:
    first = disk.open(folder / "a", create=True)
    first.append((b"abc",))
    second = disk.open(folder / "a", create=True)
    assert second.size() == 3
    second.append((b"def",))
    assert first.pread(10, 0) == b"abcdef"


def test_writing_in_place_keeps_the_rest_and_fills_holes_with_zeros(disk: Disk, folder: Path) -> None:
    file = disk.open(folder / "a", create=True)
    file.append((b"abcdef",))
    file.pwrite(b"XY", 2)
    file.pwrite(b"Z", 8)
    assert file.pread(100, 0) == b"abXYef\0\0Z"
    assert file.size() == 9


def test_after_a_truncation_appends_go_to_the_new_end(disk: Disk, folder: Path) -> None:
    file = disk.open(folder / "a", create=True)
    file.append((b"abcdef",))
    file.truncate(2)
    file.append((b"!",))
    file.sync()
    assert file.pread(10, 0) == b"ab!"


def test_a_file_that_is_not_there_is_named_in_the_error(disk: Disk, folder: Path) -> None:
    attempts: list[Callable[[Path], object]] = [disk.open, disk.read_bytes, disk.file_size]
    for attempt in attempts:
        with pytest.raises(FileNotFoundError, match="missing"):
            attempt(folder / "missing")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        disk.list_dir(folder / "nowhere")


def test_a_closed_file_refuses_to_be_read(disk: Disk, folder: Path) -> None:
    file = disk.open(folder / "a", create=True)
    file.close()
    with pytest.raises(OSError, match=r"Bad file descriptor|closed"):
        file.pread(1, 0)


def test_names_come_go_and_change(disk: Disk, folder: Path) -> None:
    disk.open(folder / "a", create=True).close()
    disk.open(folder / "b", create=True).close()
    assert sorted(disk.list_dir(folder)) == ["a", "b"]
    disk.rename(folder / "a", folder / "c")
    disk.remove(folder / "b")
    disk.remove(folder / "b")
    disk.sync_dir(folder)
    assert disk.list_dir(folder) == ["c"]
    assert disk.exists(folder / "c")
    assert not disk.exists(folder / "a")


def test_a_rename_replaces_its_target_and_open_files_stay_themselves(disk: Disk, folder: Path) -> None:
    old = disk.open(folder / "a", create=True)
    old.append((b"old",))
    fresh = disk.open(folder / "b", create=True)
    fresh.append((b"new",))
    disk.rename(folder / "b", folder / "a")
    assert disk.read_bytes(folder / "a") == b"new"
    assert old.pread(3, 0) == b"old"
    assert fresh.pread(3, 0) == b"new"


def test_a_removed_file_is_readable_for_who_has_it_open(disk: Disk, folder: Path) -> None:
    file = disk.open(folder / "a", create=True)
    file.append((b"abc",))
    disk.remove(folder / "a")
    assert file.pread(3, 0) == b"abc"


def test_folders_are_renamed_and_removed_with_what_is_in_them(disk: Disk, folder: Path) -> None:
    disk.open(folder / "a", create=True).append((b"abc",))
    aside = folder.with_name("orders-0.deleted")
    disk.rename(folder, aside)
    assert disk.read_bytes(aside / "a") == b"abc"
    disk.remove_tree(aside)
    disk.remove_tree(aside)
    assert not disk.exists(aside)


def test_an_atomic_write_makes_or_replaces_the_whole_file_and_leaves_nothing_else(disk: Disk, folder: Path) -> None:
    disk.write_atomic(folder / "a", b"first, and longer")
    disk.write_atomic(folder / "a", b"second")
    assert disk.read_bytes(folder / "a") == b"second"
    assert disk.file_size(folder / "a") == 6
    assert disk.list_dir(folder) == ["a"]


def test_a_lock_is_held_by_one_until_it_is_released(disk: Disk, folder: Path) -> None:
    release = disk.lock(folder / "lock")
    assert release is not None
    assert disk.lock(folder / "lock") is None
    release()
    again = disk.lock(folder / "lock")
    assert again is not None
    again()


def test_many_files_are_synced_in_one_call_and_each_tells_of_its_own_trouble(disk: Disk, folder: Path) -> None:
    files = [disk.open(folder / name, create=True) for name in "abc"]
    for file in files:
        file.append((b"123",))
    assert disk.sync_files(files) == [None, None, None]
    assert disk.sync_files([]) == []
    files[1].close()
    found = disk.sync_files(files)
    assert found[0] is None
    assert found[1] is not None
    assert found[1].errno == errno.EBADF
    assert found[2] is None


def test_there_is_some_room(disk: Disk, folder: Path) -> None:
    assert disk.free_bytes(folder) > 0


def test_work_off_the_loop_gives_its_result_and_its_error_back(disk: Disk) -> None:
    async def main() -> None:
        assert await disk.off_loop(max, 3, 4) == 4
        with pytest.raises(ZeroDivisionError):
            await disk.off_loop(divmod, 1, 0)

    asyncio.run(main())


def test_a_sync_that_fails_on_a_full_disk_does_not_look_like_a_refused_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may have dropped pages; after a refused write it has not, so that may be repeated."""

    def no_room(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    disk = RealDisk()
    file = disk.open(tmp_path / "a", create=True)
    monkeypatch.setattr(os, "fdatasync", no_room)
    with pytest.raises(OSError, match="a sync failed: No space left on device") as failed:
        file.sync()
    monkeypatch.setattr("headrace.world.disk.sync_all", lambda descriptors: [errno.ENOSPC] * len(descriptors))
    (problem,) = disk.sync_files([file])
    assert problem is not None
    assert failed.value.errno == problem.errno == errno.EIO
    file.close()
