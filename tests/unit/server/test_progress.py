"""A transfer is stalled if it moved neither 10 MiB nor all that it had to move, in ten seconds of being looked at."""

from __future__ import annotations

from headrace.server.progress import Progress

MIB = 1 << 20


def looks(*transfers: tuple[int, int] | None) -> int | None:
    """The second of the first look, one a second, at which this transfer is stalled."""
    progress = Progress()
    for second, transfer in enumerate(transfers):
        if progress.look(float(second), {} if transfer is None else {"transfer": transfer}):
            return second
    return None


def test_one_that_does_not_move_is_stalled_after_ten_seconds() -> None:
    assert looks(*[(0, 5)] * 30) == 10


def test_ten_mebibytes_in_ten_seconds_are_enough() -> None:
    assert looks(*[(second * MIB, 100 * MIB) for second in range(60)]) is None
    assert looks(*[(second * (MIB - 1), 100 * MIB) for second in range(60)]) == 10


def test_little_may_take_ten_seconds() -> None:
    """It moves a kilobyte a second, and there is always some more."""
    assert looks(*[(second * 1024, 5 * 1024) for second in range(60)]) is None
    assert looks(*[(second * 1024, 50 * 1024) for second in range(60)]) == 10


def test_only_time_in_which_others_wait_counts() -> None:
    assert looks(*[(0, 5)] * 9, None, *[(0, 5)] * 30) == 20


def test_each_is_judged_alone() -> None:
    progress = Progress()
    for second in range(10):
        assert progress.look(float(second), {"a": (0, 1), "b": (second * 2 * MIB, MIB)}) == []
    assert progress.look(10.0, {"a": (0, 1), "b": (20 * MIB, MIB)}) == ["a"]
