"""The checkpoint file: three slots, and which of them counts whatever a crash leaves."""

from __future__ import annotations

import random
from pathlib import Path

from msgspec.structs import replace

from headrace.log.checkpoint import NAME, SLOT_BYTES, Checkpoint, choose, hint, load, settle
from sim.disk import SimDisk

FOLDER = Path("/data")


def new_disk() -> SimDisk:
    disk = SimDisk()
    disk.make_dirs(FOLDER)
    disk.sync_dir(Path("/"))
    disk.open(FOLDER / NAME, create=True)
    disk.sync_dir(FOLDER)
    return disk


def test_every_field_comes_back() -> None:
    full = Checkpoint(
        generation=0, start_offset=1, recovery_point=2, segment=3, position=4, first_append_ms=5, clean=True,
        has_producers=True, restart_at=7, cleaned_to=8, thinned=True,
    )  # fmt: skip
    for one in (full, replace(full, restart_at=None, truncate_to=0, clean=False), Checkpoint()):
        disk = new_disk()
        settle(disk, FOLDER, one)
        assert load(disk, FOLDER) == replace(one, generation=1)


def test_a_compacted_log_of_an_earlier_version_has_batches_without_some_of_their_records() -> None:
    disk = new_disk()
    settle(disk, FOLDER, Checkpoint(cleaned_to=8, thinned=False))
    point = load(disk, FOLDER)
    assert point is not None
    assert point.thinned


def test_a_hint_counts_for_its_own_generation_only() -> None:
    disk = new_disk()
    first = settle(disk, FOLDER, Checkpoint(start_offset=10))
    hint(disk, FOLDER, replace(first, recovery_point=50))
    assert load(disk, FOLDER) == replace(first, recovery_point=50)
    second = settle(disk, FOLDER, replace(first, start_offset=20))
    assert load(disk, FOLDER) == second


def test_what_was_settled_survives_a_torn_write_of_the_next() -> None:
    disk = new_disk()
    settled = Checkpoint()
    for number in range(1, 6):
        settled = settle(disk, FOLDER, replace(settled, start_offset=number))
        data = bytearray(disk.read_bytes(FOLDER / NAME))
        other = SLOT_BYTES * ((settled.generation + 1) % 2)
        data[other : other + 40] = b"\xff" * 40
        assert choose(bytes(data)) == settled


def test_after_a_crash_the_file_says_what_was_settled_or_a_later_hint() -> None:
    for seed in range(100):
        disk = new_disk()
        settled = settle(disk, FOLDER, Checkpoint(start_offset=3))
        hints = [replace(settled, recovery_point=point) for point in (10, 20, 30)]
        for one in hints:
            hint(disk, FOLDER, one)
        disk.crash(random.Random(seed))
        assert load(disk, FOLDER) in [settled, *hints], f"seed {seed}"


def test_no_file_and_an_empty_file_are_no_checkpoint() -> None:
    disk = new_disk()
    assert load(disk, FOLDER) is None
    disk.remove(FOLDER / NAME)
    assert load(disk, FOLDER) is None
