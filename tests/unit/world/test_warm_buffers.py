"""A warm buffer is lent again when nobody holds a view of it, and never before."""

from __future__ import annotations

from pathlib import Path

from headrace.world.disk import RealDisk
from headrace.world.warm_buffers import WARM_BYTES, WarmBuffers


def test_a_buffer_is_lent_again_once_its_last_view_is_gone() -> None:
    warm = WarmBuffers(1)
    first = warm.lend(100_000)
    part = memoryview(first)[10:20]
    memory = memoryview(first).obj
    del first
    assert memoryview(warm.lend(100_000)).obj is not memory, "somebody still holds a part of it"
    del part
    again = warm.lend(WARM_BYTES)
    assert memoryview(again).obj is memory
    assert len(again) == WARM_BYTES


def test_there_are_never_more_than_the_limit_and_odd_sizes_are_fresh() -> None:
    warm = WarmBuffers(2)
    lent = [warm.lend(64 << 10) for _ in range(3)]
    assert [isinstance(one, memoryview) for one in lent] == [True, True, False]
    assert len({id(memoryview(one).obj) for one in lent}) == 3
    assert [len(one) for one in lent] == [64 << 10] * 3
    lent.clear()
    assert [isinstance(warm.lend(size), bytearray) for size in (0, 100, WARM_BYTES + 1)] == [True] * 3


def test_what_was_read_stays_while_it_is_held(tmp_path: Path) -> None:
    disk = RealDisk()
    file = disk.open(tmp_path / "f", create=True)
    try:
        file.append([b"a" * 100_000, b"b" * 100_000])
        held = [file.borrow_cached(100_000, position) for position in (0, 100_000)]
        held += [file.borrow_cached(100_000, 50_000) for _ in range(10)]
        for one, (first, last) in zip(held, [b"aa", b"bb", b"ab"], strict=False):
            assert one is None or (one[0], one[-1]) == (first, last)  # None: this file system cannot tell
    finally:
        file.close()
        disk.close()
