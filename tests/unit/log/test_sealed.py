"""What a start finds of sealed segments that are missing, cut, swapped or of another log."""

from __future__ import annotations

import errno
import itertools
import os
import random
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.log import identity, sealed
from headrace.log.compaction import Compactor
from headrace.log.partition_log import PartitionLog
from headrace.log.sealed import Gap
from headrace.log.segment import INDEX_SUFFIXES, segment_path
from headrace.model.topic_config import TopicConfig
from headrace.world.disk import Disk, File, RealDisk
from sim.disk import SimDisk
from tests.unit.log.batches import FOLDER, NOW, batch, new_shelf, offsets, open_log

SIZE = len(batch())
CONFIG = TopicConfig(segment_bytes=3 * SIZE, index_interval_bytes=SIZE)  # three records a segment


def eleven_records(disk: Disk, folder: Path = FOLDER, *, values: bytes = b"value", clean: bool = True) -> PartitionLog:
    log = open_log(disk, CONFIG, folder)
    for _ in range(11):
        log.append(batch(value=values), 0, now_ms=NOW)
    if clean:
        log.close()
    else:
        log.sync(checkpoint=True)
    return log


def path_of(base: int, folder: Path = FOLDER) -> Path:
    return segment_path(folder, base, ".log")


def ranges(log: PartitionLog) -> list[tuple[int, int]]:
    return [(gap.first_offset, gap.next_offset) for gap in log.missing]


@pytest.fixture(params=["listed", "not listed"])
def listed(request: pytest.FixtureRequest) -> bool:
    """Without the list, as in a folder of an earlier version, the segments are measured."""
    return bool(request.param == "listed")


def forget_list(disk: Disk, listed: bool) -> None:
    if not listed:
        disk.remove(FOLDER / sealed.NAME)


@pytest.mark.parametrize("clean", [True, False])
def test_an_undamaged_log_has_nothing_missing(clean: bool, listed: bool) -> None:
    disk = SimDisk()
    eleven_records(disk, clean=clean)
    forget_list(disk, listed)
    again = open_log(disk, CONFIG)
    assert again.missing == ()
    assert offsets(again) == list(range(11))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("base", [0, 3, 6])
def test_a_missing_segment_is_named_and_the_rest_served(base: int, clean: bool, listed: bool) -> None:
    disk = SimDisk()
    eleven_records(disk, clean=clean)
    forget_list(disk, listed)
    disk.remove(path_of(base))
    again = open_log(disk, CONFIG)
    assert ranges(again) == [(base, base + 3)]
    assert offsets(again) == [offset for offset in range(11) if not base <= offset < base + 3]
    assert again.start_offset == 0, "else followers would drop the records that are missing here"
    if listed:
        assert path_of(base).name in again.missing[0].why


def test_it_is_named_at_every_start_until_the_file_is_back() -> None:
    disk = SimDisk()
    eleven_records(disk)
    disk.rename(path_of(3), FOLDER / "elsewhere")
    log = open_log(disk, CONFIG)
    log.append(batch(), 0, now_ms=NOW)
    log.close()
    again = open_log(disk, CONFIG)
    assert ranges(again) == [(3, 6)]
    again.close()
    disk.rename(FOLDER / "elsewhere", path_of(3))
    whole = open_log(disk, CONFIG)
    assert whole.missing == ()
    assert offsets(whole) == list(range(12))


def test_neighbours_missing_together_are_one_gap(listed: bool) -> None:
    disk = SimDisk()
    eleven_records(disk)
    forget_list(disk, listed)
    for base in (3, 6):
        disk.remove(path_of(base))
    again = open_log(disk, CONFIG)
    assert ranges(again) == [(3, 9)]
    assert offsets(again) == [0, 1, 2, 9, 10]


def test_segments_that_were_swapped_are_set_aside(listed: bool) -> None:
    disk = SimDisk()
    eleven_records(disk)
    forget_list(disk, listed)
    disk.rename(path_of(0), FOLDER / "x")
    disk.rename(path_of(6), path_of(0))
    disk.rename(FOLDER / "x", path_of(6))
    again = open_log(disk, CONFIG)
    assert ranges(again) == [(0, 3), (6, 9)]
    assert offsets(again) == [3, 4, 5, 9, 10]
    names = disk.list_dir(FOLDER)
    assert {path_of(0).name + sealed.FOREIGN, path_of(6).name + sealed.FOREIGN} <= set(names)
    assert not {path_of(0).name, path_of(6).name} & set(names)


@pytest.mark.parametrize("values", [b"other", b"longer than that"])
def test_a_segment_of_another_partition_with_the_same_offsets_is_never_served(values: bytes) -> None:
    disk = SimDisk()
    eleven_records(disk)
    other = FOLDER.with_name("payments-0")
    log = open_log(disk, TopicConfig(segment_bytes=3 * len(batch(value=values))), other)
    for _ in range(11):
        log.append(batch(value=values), 0, now_ms=NOW)
    log.close()
    content = disk.read_bytes(path_of(3, other))
    disk.remove(path_of(3))
    disk.write_atomic(path_of(3), content)
    again = open_log(disk, CONFIG)
    assert ranges(again) == [(3, 6)]
    assert offsets(again) == [0, 1, 2, 6, 7, 8, 9, 10]
    assert disk.read_bytes(path_of(3).with_name(path_of(3).name + sealed.FOREIGN)) == content


@pytest.mark.parametrize("cut", [0, 30, SIZE, SIZE + 30, 3 * SIZE - 1])
def test_of_a_cut_segment_the_whole_batches_are_served(cut: int, listed: bool) -> None:
    disk = SimDisk()
    eleven_records(disk)
    forget_list(disk, listed)
    file = disk.open(path_of(3))
    file.truncate(cut)
    file.close()
    again = open_log(disk, CONFIG)
    first = 3 + cut // SIZE
    assert ranges(again) == [(first, 6)]
    assert offsets(again) == [*range(first), *range(6, 11)]


def test_bytes_behind_the_end_of_a_segment_do_not_count() -> None:
    disk = SimDisk()
    eleven_records(disk)
    file = disk.open(path_of(3))
    file.append((bytes(batch()),))
    file.close()
    again = open_log(disk, CONFIG)
    assert again.missing == ()
    assert offsets(again) == list(range(11))


def test_a_segment_too_many_is_set_aside(listed: bool) -> None:
    disk = SimDisk()
    eleven_records(disk)
    forget_list(disk, listed)
    disk.write_atomic(path_of(4), disk.read_bytes(path_of(6)))
    again = open_log(disk, CONFIG)
    assert again.missing == ()
    assert offsets(again) == list(range(11))
    assert path_of(4).name + sealed.FOREIGN in disk.list_dir(FOLDER)


def test_a_second_wrong_file_does_not_replace_the_first_that_was_set_aside() -> None:
    disk = SimDisk()
    eleven_records(disk)
    for content in (b"one", b"two"):
        disk.remove(path_of(3))
        disk.write_atomic(path_of(3), content * 100)
        open_log(disk, CONFIG).close()
    kept = {disk.read_bytes(FOLDER / name)[:3] for name in disk.list_dir(FOLDER) if sealed.FOREIGN in name}
    assert kept == {b"one", b"two"}


def test_a_gap_closes_when_the_log_is_cut_before_it() -> None:
    disk = SimDisk()
    eleven_records(disk)
    disk.remove(path_of(3))
    log = open_log(disk, CONFIG)
    log.truncate_to(3)
    assert log.missing == ()
    assert log.end_offset == 3
    for _ in range(8):
        log.append(batch(), 1, now_ms=NOW)
    log.close()
    again = open_log(disk, CONFIG)
    assert again.missing == ()
    assert offsets(again) == list(range(11))


def test_a_gap_at_the_start_closes_when_the_log_starts_over() -> None:
    disk = SimDisk()
    eleven_records(disk)
    disk.remove(path_of(0))
    log = open_log(disk, CONFIG)
    assert ranges(log) == [(0, 3)]
    log.truncate_to(0)
    assert log.missing == ()
    assert (log.start_offset, log.end_offset) == (0, 0)


def test_what_retention_or_delete_records_took_is_not_missing() -> None:
    disk = SimDisk()
    log = eleven_records(disk, clean=False)
    log.advance_start(7)
    log.close()
    again = open_log(disk, CONFIG)
    assert again.missing == ()
    assert offsets(again) == [7, 8, 9, 10]


def test_a_gap_goes_when_retention_has_passed_it() -> None:
    disk = SimDisk()
    eleven_records(disk)
    disk.remove(path_of(3))
    log = open_log(disk, CONFIG)
    log.advance_start(7)
    assert log.missing == ()


@pytest.mark.parametrize("content", [b"", b"HRSG", b"\xff" * 300, "future"])
def test_a_damaged_list_is_made_again(content: bytes | str) -> None:
    disk = SimDisk()
    eleven_records(disk)
    stored = disk.read_bytes(FOLDER / sealed.NAME)
    wrong = stored[:4] + b"\0\x02" + stored[6:] if content == "future" else bytes(content)  # type: ignore[arg-type]
    disk.write_atomic(FOLDER / sealed.NAME, wrong)
    again = open_log(disk, CONFIG)
    assert again.missing == ()
    again.close()
    assert disk.read_bytes(FOLDER / sealed.NAME) == stored


def test_an_append_writes_no_list_and_a_log_of_one_segment_has_none() -> None:
    disk = SimDisk()
    log = open_log(disk)
    log.append(batch(), 0, now_ms=NOW)
    log.close()
    assert sealed.NAME not in disk.list_dir(FOLDER)


def test_nothing_is_removed_when_the_segment_of_the_recovery_point_is_missing() -> None:
    """The log is offline then, and what comes after the hole may be all that an operator has."""
    disk = SimDisk()
    eleven_records(disk, clean=False)
    log = open_log(disk, CONFIG)
    for _ in range(4):
        log.append(batch(), 0, now_ms=NOW)
    log.sync()
    disk.remove(path_of(9))
    before = {name for name in disk.list_dir(FOLDER) if name.endswith(".log")}
    again = open_log(disk, CONFIG)
    assert again.offline is not None
    assert {name for name in disk.list_dir(FOLDER) if name.endswith(".log")} == before


def test_a_log_without_any_segment_up_to_its_recovery_point_is_offline() -> None:
    disk = SimDisk()
    log = eleven_records(disk, clean=False)
    for _ in range(4):
        log.append(batch(), 0, now_ms=NOW)
    log.sync()
    for base in (0, 3, 6, 9):
        disk.remove(path_of(base))
    again = open_log(disk, CONFIG)
    assert "begins at offset 12" in str(again.offline)
    assert disk.exists(path_of(12))


def test_real_files_are_told_apart_too(tmp_path: Path) -> None:
    disk, folder = RealDisk(), tmp_path / "orders-0"
    eleven_records(disk, folder)
    (folder / path_of(3).name).rename(tmp_path / "x")
    (folder / path_of(6).name).rename(folder / path_of(3).name)
    again = open_log(disk, CONFIG, folder)
    assert ranges(again) == [(3, 9)]
    assert offsets(again) == [0, 1, 2, 9, 10]
    disk.close()


class RottenDisk(SimDisk):
    """Some files cannot be read."""

    rotten: frozenset[Path] = frozenset()

    def open(self, path: Path, *, create: bool = False) -> File:
        if path in self.rotten:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return super().open(path, create=create)


def test_a_segment_that_cannot_be_read_is_named_and_takes_nothing_else(listed: bool) -> None:
    disk = RottenDisk()
    eleven_records(disk)
    forget_list(disk, listed)
    disk.rotten = frozenset([path_of(3)])
    again = open_log(disk, CONFIG)
    assert ranges(again) == [(3, 6)]
    assert f"offsets 3 to 5 cannot be read: segment {path_of(3).name}" in again.missing[0].told(FOLDER)
    for offset in (0, 6):
        assert again.read(offset, 1, again.end_offset, at_least_one=True).load()
    with pytest.raises(OSError, match="Input/output error"):
        again.read(3, 1, again.end_offset, at_least_one=True).load()
    disk.rotten = frozenset()
    assert offsets(again) == list(range(11))
    again.append(batch(), 0, now_ms=NOW)
    again.close()
    assert open_log(disk, CONFIG).missing == ()


def test_what_is_said_names_file_offsets_and_what_to_do() -> None:
    gap = Gap(3, 6, "segment X is not there")
    line = gap.told(FOLDER)
    assert str(FOLDER) in line
    assert "3 to 5" in line
    assert "segment X is not there" in line
    assert "restore" in line


def test_indexes_of_a_segment_set_aside_go() -> None:
    disk = SimDisk()
    eleven_records(disk)
    disk.write_atomic(path_of(3), disk.read_bytes(path_of(6)))
    open_log(disk, CONFIG)
    assert not any(disk.exists(segment_path(FOLDER, 3, suffix)) for suffix in INDEX_SUFFIXES)
    assert identity.load(disk, FOLDER) == uuid.UUID(int=1)


# -- a power cut at every step ----------------------------------------------------------------------------------------


class PowerCut(BaseException):
    pass


class MortalDisk(SimDisk):
    """Loses power at the n-th change of a name or a file, counted from `steps_left` on."""

    steps_left: int | None = None

    def take_room(self, size: int, *, partly: bool = False) -> int:
        self._step()
        return super().take_room(size, partly=partly)

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._step()
        super().remove(path)

    def sync_dir(self, path: Path) -> None:
        self._step()
        super().sync_dir(path)

    def _step(self) -> None:
        if self.steps_left is not None:
            self.steps_left -= 1
            if self.steps_left < 0:
                raise PowerCut


COMPACTED = TopicConfig(
    segment_bytes=3 * SIZE, index_interval_bytes=SIZE, cleanup_policy=("compact",), file_delete_delay_ms=0
)


def grow(log: PartitionLog) -> None:
    for _ in range(7):
        log.append(batch(), 1, now_ms=NOW)
    log.sync(checkpoint=True)


def cut(log: PartitionLog) -> None:
    log.truncate_to(4)
    grow(log)


def start_over(log: PartitionLog) -> None:
    log.restart_at(20)
    grow(log)


def trim(log: PartitionLog) -> None:
    log.advance_start(7)
    log.apply_retention(NOW + 1)
    grow(log)


def compact(log: PartitionLog) -> None:
    Compactor(new_shelf(log._shelf.disk), step_bytes=300).compact(log, NOW)
    grow(log)


@pytest.mark.parametrize("work", [grow, cut, start_over, trim, compact])
def test_nothing_that_a_power_cut_leaves_behind_looks_like_damage(work: Callable[[PartitionLog], None]) -> None:
    for steps in itertools.count():
        for seed in range(3):
            disk = MortalDisk()
            disk.make_dirs(FOLDER)
            identity.save(disk, FOLDER, uuid.UUID(int=1))
            for folder in (FOLDER.parent.parent, FOLDER.parent, FOLDER):
                disk.sync_dir(folder)
            log = open_log(disk, COMPACTED)
            for _ in range(11):
                log.append(batch(), 0, now_ms=NOW)
            log.close()
            log = open_log(disk, COMPACTED)
            disk.steps_left = steps
            try:
                work(log)
            except PowerCut:
                done = False
            else:
                done = True
            disk.steps_left = None
            disk.crash(random.Random(seed))
            again = open_log(disk, COMPACTED)
            assert (again.missing, again.offline) == ((), None), f"after {steps} steps, seed {seed}"
            assert not [name for name in disk.list_dir(FOLDER) if sealed.FOREIGN in name]
        if done:
            assert steps > 10
            return


def test_a_segment_that_compaction_has_rewritten_is_the_log_s_own() -> None:
    disk = SimDisk()
    log = open_log(disk, COMPACTED)
    for _ in range(11):
        log.append(batch(), 0, now_ms=NOW)
    log.close()
    log = open_log(disk, COMPACTED)
    Compactor(log._shelf, step_bytes=300).compact(log, NOW)
    kept = offsets(log)
    assert len(kept) < 11
    again = open_log(disk, COMPACTED)
    assert (again.missing, offsets(again)) == ((), kept)


def test_a_wrong_segment_of_the_same_size_is_never_served() -> None:
    test_a_segment_of_another_partition_with_the_same_offsets_is_never_served(b"other")
