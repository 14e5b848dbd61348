"""The pool of open files: bounded, pinned while in use, following renames."""

from __future__ import annotations

from pathlib import Path

from headrace.log.files import FilePool, PooledFile
from sim.disk import SimDisk

FOLDER = Path("/data")


def pool_of(capacity: int, names: str) -> tuple[FilePool, list[PooledFile]]:
    disk = SimDisk()
    disk.make_dirs(FOLDER)
    pool = FilePool(disk, capacity)
    files = [pool.file(FOLDER / name) for name in names]
    for file in files:
        file.create()
    return pool, files


def test_a_file_that_was_not_used_of_late_is_closed_and_opens_again_when_asked() -> None:
    pool, (a, b, c, d) = pool_of(3, "abcd")
    assert set(pool.opened) == {b, c, d}
    with b, d:
        pass
    with a as file:
        file.append((b"again",))
    assert set(pool.opened) == {a, b, d}, "all others were used since"
    with c:
        pass
    assert set(pool.opened) == {a, c, d}, "nobody used it after it was passed over"
    with b:
        pass
    with a as file:
        assert file.pread(9, 0) == b"again"


def test_when_all_were_used_the_oldest_goes() -> None:
    pool, (a, b, c) = pool_of(2, "abc")
    with b, c:
        pass
    with a:
        pass
    assert set(pool.opened) == {a, c}


def test_a_file_in_use_is_never_closed_by_others() -> None:
    pool, (a, b, c, d) = pool_of(1, "abcd")
    with a as held, b, c:
        assert set(pool.opened) == {a, b, c}, "rather too many than one taken away"
        a.close()
        held.append((b"still open",))
    with d:
        assert list(pool.opened) == [d]


def test_a_renamed_file_is_found_under_its_new_name() -> None:
    pool, (a, b) = pool_of(1, "ab")
    with a as file:
        file.append((b"here",))
    a.rename(FOLDER / "a.deleted")
    with b:
        pass
    with a as file:
        assert file.pread(4, 0) == b"here"
    pool.close()
    assert not pool.opened


def test_making_a_file_that_a_crash_left_behind_empties_it() -> None:
    pool, (a,) = pool_of(1, "a")
    with a as file:
        file.append((b"leftover",))
    again = pool.file(FOLDER / "a")
    again.create()
    with again as file:
        assert file.size() == 0
