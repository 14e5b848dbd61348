"""Runs of records, written over each other, against one entry for each offset."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinators.shares.batches import Batches, cut, put
from headrace.model.share_state import StateBatch

RUNS = st.builds(
    lambda first, length, state, count: StateBatch(first, first + length, state, count),
    st.integers(0, 40),
    st.integers(0, 12),
    st.sampled_from([0, 2, 4]),
    st.integers(0, 2),
)


def by_offset(batches: list[StateBatch]) -> dict[int, tuple[int, int]]:
    return {
        offset: (batch.state, batch.delivery_count)
        for batch in batches
        for offset in range(batch.first_offset, batch.last_offset + 1)
    }


@given(st.lists(st.tuples(st.lists(RUNS, max_size=4), st.integers(0, 30)), max_size=8))
def test_what_was_written_last_counts_unless_it_takes_back_what_was_done(
    writes: list[tuple[list[StateBatch], int]],
) -> None:
    batches: Batches = []
    expected: dict[int, tuple[int, int]] = {}
    start = 0
    for changed, later in writes:
        start = max(start, later)
        put(batches, changed, start)
        for batch in changed:
            for offset, told in by_offset([batch]).items():
                if told[0] or not expected.get(offset, told)[0]:  # what is done with stays so
                    expected[offset] = told
        expected = {offset: told for offset, told in expected.items() if offset >= start}
        assert by_offset(batches) == expected
        for one, other in pairwise(batches):
            assert one.last_offset < other.first_offset
            alike = (one.state, one.delivery_count) == (other.state, other.delivery_count)
            assert not (alike and one.last_offset + 1 == other.first_offset), "two runs that are one"


def test_a_cut_goes_through_a_run() -> None:
    batches = [StateBatch(0, 9, 2, 1), StateBatch(12, 20, 0, 1)]
    cut(batches, 5)
    assert batches == [StateBatch(5, 9, 2, 1), StateBatch(12, 20, 0, 1)]
    cut(batches, 11)
    assert batches == [StateBatch(12, 20, 0, 1)]
    cut(batches, 21)
    assert batches == []
