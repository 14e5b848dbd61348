"""The tagged records of the section "views": one in a hundred is kept, in runs or spread."""

from __future__ import annotations

import itertools

import pytest

from bench.tagged.layout import LAYOUTS, RUN, VALUE_BYTES, Layout, is_gold, values


@pytest.mark.parametrize("layout", LAYOUTS)
def test_about_one_in_a_hundred_carries_the_tag_and_always_the_same(layout: Layout) -> None:
    tagged = list(is_gold(layout, 200_000))
    assert 1800 <= sum(tagged) <= 2200
    assert tagged == list(is_gold(layout, 200_000))


def test_runs_are_whole_and_random_ones_are_short() -> None:
    longest = {
        layout: max(len(list(run)) for gold, run in itertools.groupby(is_gold(layout, 200_000)) if gold)
        for layout in LAYOUTS
    }
    assert longest["runs"] == RUN
    assert longest["random"] < 10


def test_values_have_one_size_and_differ() -> None:
    lines = values(100)
    assert {len(line) for line in lines} == {VALUE_BYTES}
    assert len(set(lines)) == 100
