"""Leader epochs: where each began, where it ended, and what a shorter log still knows."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from headrace.log.checkpoint import Checkpoint
from headrace.log.derived import Moment, Occasion
from headrace.log.leader_epochs import NAME, LeaderEpochs, load
from headrace.log.partition_folder import PartitionFolder
from headrace.model.failure import Failure
from sim.disk import SimDisk


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    made = LeaderEpochs()
    for epoch, start in entries:
        made.assign(epoch, start)
    return made


def test_an_epoch_ends_where_the_next_begins_and_the_last_at_the_end_of_the_log() -> None:
    known = epochs((1, 0), (3, 10), (7, 25))
    assert known.end_offset_for(1, 40) == (1, 10)
    assert known.end_offset_for(2, 40) == (1, 10), "the largest epoch not above the asked one (KIP-279)"
    assert known.end_offset_for(3, 40) == (3, 25)
    assert known.end_offset_for(7, 40) == (7, 40)
    assert known.end_offset_for(8, 40) is None, "a later epoch than this log has seen"
    assert known.end_offset_for(0, 40) == (0, 0), "before the first, it ended where that begins"
    assert known.end_offset_for(-1, 40) is None, "no epoch at all"
    assert LeaderEpochs().end_offset_for(0, 40) is None


def test_an_epoch_without_records_gives_way_to_the_next_at_the_same_offset() -> None:
    assert epochs((1, 0), (2, 5), (3, 5)).entries == [(1, 0), (3, 5)]


def test_an_epoch_that_is_known_or_older_changes_nothing() -> None:
    known = epochs((4, 0))
    known.changed = False
    known.assign(4, 9)
    known.assign(2, 9)
    assert (known.entries, known.changed) == ([(4, 0)], False)


def test_offsets_know_their_epoch() -> None:
    known = epochs((1, 5), (3, 10))
    assert [known.epoch_of(offset) for offset in (4, 5, 9, 10, 99)] == [-1, 1, 1, 3, 3]


def test_a_shorter_log_forgets_what_lies_outside() -> None:
    known = epochs((1, 0), (3, 10), (7, 25))
    known.cut_tail(25)
    assert (known.entries, known.latest) == ([(1, 0), (3, 10)], 3)
    known.cut_head(12)
    assert known.entries == [(3, 12)]
    known.cut_tail(12)
    assert (known.entries, known.latest) == ([], -1)


def test_the_file_gives_back_what_was_saved_and_other_versions_are_refused() -> None:
    disk, folder = SimDisk(), Path("/data")
    disk.make_dirs(folder)
    assert load(disk, folder) == []
    known = epochs((1, 0), (3, 10))
    assert known.changed
    partition = PartitionFolder(disk, folder, uuid.UUID(int=7), Checkpoint())
    stored = known.snapshot(Moment(Occasion.SETTLE, partition, 20, [], 0, {}))
    assert stored is not None
    stored.write()
    assert not known.changed
    assert load(disk, folder) == [(1, 0), (3, 10)]
    disk.write_atomic(folder / NAME, b"headrace-leader-epochs 2\n")
    with pytest.raises(Failure, match="has format 2, this headrace knows format 1"):
        load(disk, folder)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"headrace-leader-epochs 1\n1 0\n3 1",  # cut
        b"headrace-leader-epochs 1\n1 0\n3\n",
        b"headrace-leader-epochs 1\n3 0\n1 10\n",
        b"headrace-leader-epochs 1\n1 10\n3 10\n",
        b"headrace-leader-epochs x\n1 0\n",
    ],
)
def test_a_damaged_file_is_told_from_one_without_epochs(text: bytes) -> None:
    disk, folder = SimDisk(), Path("/data")
    disk.make_dirs(folder)
    disk.write_atomic(folder / NAME, text)
    assert load(disk, folder) is None
