"""While full collections are postponed none happens, and afterwards everything is as before."""

from __future__ import annotations

import gc

import pytest

from headrace.server.full_collections import FullCollections


def test_many_new_objects_start_no_full_collection() -> None:
    begun: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            begun.append(info["generation"])

    gc.collect()
    gc.freeze()
    gc.collect()  # so that a few new objects are many more than before
    gc.callbacks.append(note)
    before = gc.get_threshold()
    try:
        gc.set_threshold(100, 2, 2)
        with FullCollections().postponed():
            kept = [[number] for number in range(5_000)]
        postponed, begun[:] = list(begun), []
        kept += [[number] for number in range(50_000)]
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)
        gc.unfreeze()
    assert set(postponed) == {0, 1}
    assert 2 in begun, "they go on"


def test_the_last_of_several_ends_it_even_after_an_error() -> None:
    collections, before = FullCollections(), gc.get_threshold()
    with collections.postponed():
        with pytest.raises(ZeroDivisionError), collections.postponed():
            raise ZeroDivisionError
        assert gc.get_threshold() != before
    assert gc.get_threshold() == before
