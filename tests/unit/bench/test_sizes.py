"""Both modes of the bench warm up every kind of work; only the fresh one does it shortly."""

from __future__ import annotations

import pytest

from bench.sizes import QUICK, Sizes


@pytest.mark.parametrize("sizes", [Sizes(), QUICK])
def test_a_short_warm_up_writes_a_little_of_every_kind_and_reads_all_there_is(sizes: Sizes) -> None:
    warm_up = sizes.short_warm_up()
    assert [kind.key for kind in warm_up] == [kind.key for kind in sizes.work()]
    assert {kind.messages for kind in warm_up if not kind.reads} == {sizes.warm_messages}
    assert [kind for kind in warm_up if kind.reads] == [kind for kind in sizes.work() if kind.reads]


def test_a_thorough_warm_up_is_whole_rounds() -> None:
    assert list(Sizes().thorough_warm_up()) == [*Sizes().work(), *Sizes().work()]
