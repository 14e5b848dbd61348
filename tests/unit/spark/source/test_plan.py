"""Planning a read is arithmetic: ranges stay whole and disjoint, limits hold, and nobody starves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.model.topic_partition import TopicPartition
from headrace.spark.source.plan import (
    SMALL_TASK_RECORDS,
    OffsetRange,
    limited,
    narrowed,
    packed,
    ranges_between,
    record_count,
    split,
)
from headrace.spark.source.positions import Offsets

A, B, C = (TopicPartition("t", number) for number in range(3))

places = st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 3))
offsets = st.dictionaries(places, st.integers(0, 100), max_size=6)


@st.composite
def ranges(draw: st.DrawFn, least: int = 1) -> list[OffsetRange]:
    found = draw(st.lists(places, unique=True, min_size=least, max_size=6))
    sizes = st.integers(1, 50) | st.integers(1, 3 * SMALL_TASK_RECORDS)
    return [OffsetRange(place, low := draw(st.integers(0, 1000)), low + draw(sizes)) for place in found]


def covered(parts: list[OffsetRange]) -> list[tuple[TopicPartition, int, int]]:
    """Neighbouring parts joined again."""
    joined: list[tuple[TopicPartition, int, int]] = []
    for part in sorted(parts, key=lambda part: (part.place, part.start)):
        if joined and joined[-1][0] == part.place and joined[-1][2] == part.start:
            joined[-1] = (part.place, joined[-1][1], part.end)
        else:
            joined.append((part.place, part.start, part.end))
    return joined


@given(ranges(0), st.none() | st.integers(1, 40), st.none() | st.integers(7, 1000))
def test_splitting_covers_the_same_offsets_in_parts_of_the_wanted_size(
    whole: list[OffsetRange], least: int | None, most: int | None
) -> None:
    parts = split(whole, least, most)
    assert covered(parts) == covered(whole)
    assert all(part.size > 0 for part in parts)
    assert most is None or all(part.size <= most for part in parts)
    if least is not None and whole:
        assert len(parts) >= min(least, sum(one.size for one in whole))


def test_without_wishes_each_partition_is_one_part() -> None:
    whole = [OffsetRange(A, 0, 10_000_000), OffsetRange(B, 5, 6)]
    assert split(whole, None, None) == whole
    assert split(whole, 2, None) == whole
    assert [part.size for part in split([OffsetRange(A, 0, 10)], 3, None)] == [3, 3, 4]


@given(ranges(0), st.none() | st.integers(1, 8))
def test_packing_puts_every_range_into_one_task_and_only_small_ones_together(
    whole: list[OffsetRange], least: int | None
) -> None:
    tasks = packed(whole, least)
    assert sorted((one for task in tasks for one in task), key=str) == sorted(whole, key=str)
    for task in tasks:
        assert len(task) == 1 or sum(one.size for one in task) <= SMALL_TASK_RECORDS
    assert len(tasks) >= min(least or 1, len(whole))


@given(offsets, offsets, st.integers(1, 120))
def test_a_limit_holds_and_is_used_up(start: Offsets, end: Offsets, limit: int) -> None:
    end = {place: max(offset, start.get(place, 0)) for place, offset in end.items()}
    reached = limited(start, end, limit)
    assert set(reached) == set(end)
    assert all(start.get(place, 0) <= reached[place] <= end[place] for place in end)
    assert record_count(start, reached) == min(limit, record_count(start, end))


def test_a_limit_is_shared_in_proportion() -> None:
    assert limited({A: 0, B: 0, C: 0}, {A: 100, B: 300, C: 0}, 40) == {A: 10, B: 30, C: 0}
    assert limited({A: 0, B: 0}, {A: 1000, B: 1}, 1) == {A: 1, B: 0}


@given(offsets, offsets)
def test_ranges_lie_between_two_offsets(start: Offsets, end: Offsets) -> None:
    found = ranges_between(start, end)
    assert all(one.start == start[one.place] and one.end == end[one.place] and one.size > 0 for one in found)
    assert {one.place for one in found} == {place for place in end if place in start and start[place] < end[place]}


def test_narrowing_cuts_off_both_ends_and_drops_what_is_empty() -> None:
    whole = [OffsetRange(A, 0, 10), OffsetRange(B, 0, 10), OffsetRange(C, 0, 10)]
    assert narrowed(whole, {A: 4, B: 20}, {A: 6, C: 30}) == [OffsetRange(A, 4, 6), OffsetRange(C, 0, 10)]
