"""The wheel and the columns against a sorted list."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.log import pending
from headrace.log.due_wheel import NEVER, DueWheel
from headrace.log.pending import NOWHERE, Pending

DUES = st.one_of(st.integers(0, 3000), st.integers(0, 10_000_000), st.sampled_from([1000, 1200_000, 5_000_000]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), DUES),
        st.tuples(st.just("move"), st.tuples(st.integers(0, 30), DUES)),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("release"), st.tuples(st.integers(0, 2_000_000), st.integers(1, 5), st.integers(0, 40))),
    ),
    max_size=60,
)


@settings(max_examples=200)
@given(STEPS)
def test_what_is_due_comes_in_order_and_nothing_else(steps: list[tuple[str, object]]) -> None:
    waiting: dict[int, int] = {}
    wheel, now, next_id = DueWheel(waiting.get), 0, 0
    for what, detail in steps:
        if what == "add":
            assert isinstance(detail, int)
            waiting[next_id] = detail
            wheel.add(next_id, detail)
            next_id += 1
        elif what == "move":
            key, due_ms = detail  # type: ignore[misc]
            if key in waiting:
                waiting[key] = due_ms
                wheel.add(key, due_ms)
        elif what == "cancel":
            waiting.pop(detail, None)  # type: ignore[call-overload]
        else:
            passed, limit, below = detail  # type: ignore[misc]
            now += passed
            wanted = sorted((due, key) for key, due in waiting.items() if due <= now and key < below)
            first = min(waiting.values(), default=NEVER)
            assert wheel.next_ms() <= first
            while wanted:
                found, more = wheel.due(now, limit, below)
                assert found == wanted[: len(found)]
                assert found or more
                for _, key in found:
                    del waiting[key]
                del wanted[: len(found)]
            assert not wheel.due(now, limit, below)[0]


def test_many_of_one_moment_come_in_pieces() -> None:
    waiting = dict.fromkeys(range(50_000), 7_000_500)
    wheel = DueWheel(waiting.get)
    for key, due_ms in waiting.items():
        wheel.add(key, due_ms)
    found, more, calls = [], True, 0
    while more:
        some, more = wheel.due(7_001_000, 500, NEVER)
        for _, key in some:
            del waiting[key]
        found += [key for _, key in some]
        calls += 1
    assert found == list(range(50_000))
    assert calls > 100
    assert wheel.due(7_001_000, 500, NEVER) == ([], False)
    assert wheel.size <= 0


PARKED = st.lists(
    st.tuples(st.lists(st.integers(0, 60), min_size=1, max_size=5, unique=True), st.integers(0, 99)), max_size=12
)


@pytest.mark.parametrize("rows", [2, 5, 1000])
@given(PARKED, st.lists(st.integers(0, 60)))
def test_columns_are_a_mapping_in_the_order_of_ids(
    rows: int, parked: list[tuple[list[int], int]], gone: list[int]
) -> None:
    with patch.object(pending, "_BLOCK_ROWS", rows):
        check_columns(parked, gone)


def check_columns(parked: list[tuple[list[int], int]], gone: list[int]) -> None:
    columns, known = Pending(), {}
    for ids, note in parked:
        ids.sort()
        columns.add(ids, [key * 2 for key in ids], note, [key % 3 for key in ids])
        known |= dict.fromkeys(ids, note)
        for key in gone[:2]:
            assert (columns.row(key) is None) == (known.pop(key, None) is None)
            columns.remove(key)
        del gone[:2]
        assert len(columns) == len(known)
        assert columns.page(0, 100) == [(key, key * 2, known[key]) for key in sorted(known)]
        assert columns.lowest_note() == min(known.values(), default=NOWHERE)
        assert columns.with_key(1) == [key for key in sorted(known) if key % 3 == 1]
        assert columns.in_notes_before(50, 0, 100) == ([key for key in sorted(known) if known[key] < 50], None)
        assert [columns.row(key) for key in sorted(known)] == [
            (key, key * 2, known[key], key % 3) for key in sorted(known)
        ]
        again = Pending()
        whole = columns.columns()
        again.adopt(len(whole[0]), lambda column, start, stop: whole[column][start:stop])  # noqa: B023
        assert again.page(0, 100) == columns.page(0, 100)
