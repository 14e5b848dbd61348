"""What the simulated disk may leave behind: what was synced, and of the rest nothing, all or some sectors."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from sim.disk import SECTOR_BYTES, SimDisk

FOLDER = Path("/data")


def new_disk() -> SimDisk:
    disk = SimDisk()
    disk.make_dirs(FOLDER)
    disk.sync_dir(Path("/"))
    return disk


def outcomes(prepare: object, seeds: int = 200) -> set[bytes | None]:
    """The contents of /data/f after crashes of every kind; None if the file is gone."""
    found: set[bytes | None] = set()
    for seed in range(seeds):
        disk = new_disk()
        prepare(disk)  # type: ignore[operator]
        disk.crash(random.Random(seed))
        found.add(disk.read_bytes(FOLDER / "f") if disk.exists(FOLDER / "f") else None)
    return found


def test_a_synced_file_with_a_synced_name_survives_every_crash() -> None:
    def prepare(disk: SimDisk) -> None:
        file = disk.open(FOLDER / "f", create=True)
        file.append((b"safe",))
        file.sync()
        disk.sync_dir(FOLDER)

    assert outcomes(prepare) == {b"safe"}


def test_a_synced_file_is_lost_if_its_name_was_not_synced() -> None:
    def prepare(disk: SimDisk) -> None:
        file = disk.open(FOLDER / "f", create=True)
        file.append((b"safe?",))
        file.sync()

    assert outcomes(prepare) == {None, b"safe?"}


def test_unsynced_writes_are_lost_kept_or_torn_between_sectors_in_any_combination() -> None:
    one, two = b"1" * SECTOR_BYTES, b"2" * 2 * SECTOR_BYTES

    def prepare(disk: SimDisk) -> None:
        file = disk.open(FOLDER / "f", create=True)
        file.sync()
        disk.sync_dir(FOLDER)
        file.append((one,))
        file.append((two,))

    zero = bytes(SECTOR_BYTES)
    found = outcomes(prepare)
    assert {b"", one, one + two, zero + two, one + two[:SECTOR_BYTES], one + zero + two[:SECTOR_BYTES]} <= found
    assert all(content is not None and len(content) % SECTOR_BYTES == 0 for content in found)


def test_a_rename_is_whole_or_not_at_all() -> None:
    def prepare(disk: SimDisk) -> None:
        disk.write_atomic(FOLDER / "f", b"old")
        file = disk.open(FOLDER / "g", create=True)
        file.append((b"new",))
        file.sync()
        disk.rename(FOLDER / "g", FOLDER / "f")

    assert outcomes(prepare) == {b"old", b"new"}


def test_an_atomic_write_leaves_the_new_contents_when_it_has_returned() -> None:
    def prepare(disk: SimDisk) -> None:
        disk.write_atomic(FOLDER / "f", b"old")
        disk.write_atomic(FOLDER / "f", b"new")

    assert outcomes(prepare) == {b"new"}


def test_files_opened_before_a_crash_are_dead_and_locks_are_free() -> None:
    disk = new_disk()
    file = disk.open(FOLDER / "f", create=True)
    assert disk.lock(FOLDER / "lock") is not None
    disk.crash(random.Random(1))
    with pytest.raises(OSError, match="crashed"):
        file.append((b"x",))
    assert disk.lock(FOLDER / "lock") is not None


def test_a_failed_sync_forgets_what_it_should_have_written() -> None:
    disk = new_disk()
    file = disk.open(FOLDER / "f", create=True)
    disk.sync_dir(FOLDER)
    file.append((b"lost",))
    disk.fail_syncs = 1
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    disk.crash(random.Random(1))
    assert disk.read_bytes(FOLDER / "f") == b""


def test_a_full_disk_takes_what_fits_and_says_so() -> None:
    disk = new_disk()
    file = disk.open(FOLDER / "f", create=True)
    disk.room_bytes = 3
    with pytest.raises(OSError, match="No space") as full:
        file.append((b"abcdef",))
    assert full.value.errno == errno.ENOSPC
    assert file.pread(10, 0) == b"abc"


def test_a_flipped_bit_is_there_before_and_after_a_crash() -> None:
    disk = new_disk()
    disk.write_atomic(FOLDER / "f", b"\x00\x00")
    disk.flip_bit(FOLDER / "f", 9)
    assert disk.read_bytes(FOLDER / "f") == b"\x00\x02"
    disk.crash(random.Random(1))
    assert disk.read_bytes(FOLDER / "f") == b"\x00\x02"
