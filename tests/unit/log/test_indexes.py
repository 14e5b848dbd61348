"""Indexes: lookups find the entry before, files give back what was written as far as they are sound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.log.indexes import IndexShelf, SegmentIndex, decode

BASE = 1000


def index_of(entries: int, *, first: int = 0) -> SegmentIndex:
    """An entry every 100 bytes and 10 offsets, times rising by 5."""
    index = SegmentIndex()
    for number in range(first, entries):
        index.add(10 * number, 100 * number, 5 * number)
    index.covered = 100 * entries
    return index


def same(one: SegmentIndex, other: SegmentIndex) -> bool:
    fields = ("offsets", "positions", "times", "time_positions", "covered")
    return all(getattr(one, name) == getattr(other, name) for name in fields)


def test_lookups_give_the_last_place_that_is_not_too_late() -> None:
    index = index_of(10, first=1)
    assert [index.position_of(offset) for offset in (0, 9, 10, 19, 95, 10**6)] == [0, 0, 100, 100, 900, 900]
    assert [index.start_of(offset) for offset in (0, 9, 10, 90, 95, 10**6)] == [None, None, 100, 900, None, None]
    assert [index.boundary_at_or_before(position) for position in (50, 100, 350)] == [0, 100, 300]
    assert [index.position_of_time(time) for time in (5, 6, 10, 11, 999)] == [0, 100, 100, 200, 900]


def test_times_are_noted_only_when_they_rise() -> None:
    index = SegmentIndex()
    for position, newest in ((100, -1), (200, 50), (300, 50), (400, 60)):
        index.add(position, position, newest)
    assert (list(index.times), list(index.time_positions)) == ([50, 60], [200, 400])
    assert index.max_timestamp() == 60


@given(st.lists(st.integers(1, 20), max_size=6))
def test_blocks_written_one_after_the_other_are_one_index(steps: list[int]) -> None:
    index, offset_file, time_file, total = SegmentIndex(), b"", b"", 0
    for step in steps:
        for number in range(total, total + step):
            index.add(10 * number, 100 * number, 5 * number)
        total += step
        index.covered = 100 * total
        more = index.encode(BASE)
        index.mark_written()
        offset_file, time_file = offset_file + more[0], time_file + more[1]
    again = decode(offset_file, time_file, BASE)
    assert same(again, index)
    assert (again.written, again.written_times, again.blocks) == (total, len(index.times), len(steps))


def test_damage_ends_the_index_before_it_and_a_rest_still_serves() -> None:
    index = index_of(10)
    first = index.encode(BASE)
    index.mark_written()
    for number in range(10, 20):
        index.add(10 * number, 100 * number, 5 * number)
    index.covered = 2000
    second = index.encode(BASE)
    offset_file, time_file = first[0] + second[0], first[1] + second[1]
    for at in range(len(first[0]), len(offset_file)):
        damaged = bytearray(offset_file)
        damaged[at] ^= 4
        found = decode(bytes(damaged), time_file, BASE)
        assert (found.covered, len(found.offsets)) == (1000, 10)
    assert decode(offset_file[:-1], time_file, BASE).covered == 1000
    assert decode(offset_file, time_file, BASE + 1).covered == 0, "an index of another segment"
    assert decode(b"", b"", BASE).covered == 0


def test_cutting_forgets_what_lies_behind_and_asks_for_new_files() -> None:
    index = index_of(10)
    index.encode(BASE)
    index.mark_written()
    index.cut(500)
    assert (list(index.positions), index.covered) == ([0, 100, 200, 300, 400], 500)
    assert list(index.time_positions) == [0, 100, 200, 300, 400, 500], "what holds before 500 is still true"
    assert index.blocks == 0


class Owner:
    def __init__(self) -> None:
        self.dropped = False

    def drop_index(self) -> None:
        self.dropped = True


def test_the_shelf_lets_go_of_the_index_unused_for_longest() -> None:
    shelf, owners = IndexShelf(100), [Owner() for _ in range(3)]
    for owner in owners:
        shelf.keep(owner, 40)
    assert [owner.dropped for owner in owners] == [True, False, False]
    shelf.keep(owners[1], 30)
    shelf.keep(owners[0], 40)
    assert [owner.dropped for owner in owners] == [True, False, True]
