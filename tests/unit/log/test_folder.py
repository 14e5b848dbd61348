"""The data folder: one broker's, one process at a time, and in order or not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from headrace.log.folder import META, DataFolder, mark_clean
from headrace.model.failure import Failure
from sim.disk import SimDisk

PATH = Path("/data")


def opened(disk: SimDisk) -> DataFolder:
    folder = DataFolder(disk, PATH)
    folder.open()
    return folder


def claimed(disk: SimDisk) -> None:
    folder = opened(disk)
    folder.claim("cluster-a", 1, "disk-a")
    folder.close()


def test_a_new_folder_becomes_the_broker_s_own_and_is_known_again() -> None:
    disk = SimDisk()
    claimed(disk)
    folder = opened(disk)
    folder.claim("cluster-a", 1, "disk-a")


def test_a_folder_in_use_is_refused() -> None:
    disk = SimDisk()
    first = opened(disk)
    with pytest.raises(Failure, match="in use by another broker"):
        opened(disk)
    first.close()
    opened(disk)


def test_a_folder_of_another_broker_or_cluster_is_refused_and_named() -> None:
    disk = SimDisk()
    claimed(disk)
    folder = opened(disk)
    with pytest.raises(Failure, match="/data belongs to broker 1, not 2"):
        folder.claim("cluster-a", 2, "disk-a")
    with pytest.raises(Failure, match="/data belongs to cluster cluster-a, not cluster-b"):
        folder.claim("cluster-b", 1, "disk-a")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"headrace-data 9\ncluster_id x\nbroker_id 1\n", "has format 9"),
        (b"something else\n", "not a file of headrace"),
        (b"", "not a file of headrace"),
        (b"headrace-data 1\n", "damaged"),
    ],
)
def test_a_folder_of_another_version_or_kind_is_refused_and_stays_free(text: bytes, complaint: str) -> None:
    disk = SimDisk()
    disk.make_dirs(PATH)
    disk.write_atomic(PATH / META, text)
    for _ in range(2):
        with pytest.raises(Failure, match=complaint) as failure:
            opened(disk)
        assert "\n" not in str(failure.value)
    disk.remove(PATH / META)
    opened(disk)


def test_only_a_clean_stop_is_remembered_as_one_and_only_once() -> None:
    disk = SimDisk()
    assert opened(disk).was_clean
    disk.life += 1
    disk._locks.clear()
    claimed(disk)
    mark_clean(disk, PATH)
    folder = opened(disk)
    assert folder.was_clean
    folder.claim("cluster-a", 1, "disk-a")
    folder.close()
    assert not opened(disk).was_clean


def test_a_start_that_is_refused_leaves_the_clean_stop_as_it_was() -> None:
    disk = SimDisk()
    claimed(disk)
    mark_clean(disk, PATH, 12)
    folder = opened(disk)
    with pytest.raises(Failure):
        folder.claim("cluster-b", 1, "disk-a")
    folder.close()
    assert opened(disk).clean_epoch == 12


def test_a_clean_stop_tells_the_epoch_it_ended() -> None:
    disk = SimDisk()
    claimed(disk)
    disk._locks.clear()
    mark_clean(disk, PATH, 12)
    folder = opened(disk)
    assert folder.clean_epoch == 12
    folder.claim("cluster-a", 1, "disk-a")
    folder.close()
    again = opened(disk)
    assert again.clean_epoch is None


def test_a_new_folder_is_still_there_after_a_power_cut() -> None:
    for seed in range(20):
        disk = SimDisk()
        folder = DataFolder(disk, Path("/var/lib/headrace"))
        folder.open()
        folder.claim("cluster", 1, "disk-a")
        disk.crash(random.Random(seed))
        assert disk.read_bytes(Path("/var/lib/headrace") / META)
