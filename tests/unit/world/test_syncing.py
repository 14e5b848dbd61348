"""Both ways to sync many files, compiled and in Python, give the same answers."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from headrace.world import _syncing_py

compiled = pytest.importorskip("headrace.world._syncing", reason="this machine has no C compiler")


def test_the_twins_agree_on_files_on_what_cannot_be_synced_and_on_nothing(tmp_path: Path) -> None:
    file = os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    reading, writing = os.pipe()
    gone = os.dup(file)
    os.close(gone)
    try:
        for asked in ([], [file], [file, gone, reading, file], [writing]):
            assert compiled.sync_all(asked) == _syncing_py.sync_all(asked)
        assert compiled.sync_all([file, gone, reading]) == [0, errno.EBADF, errno.EINVAL]
    finally:
        for descriptor in (file, reading, writing):
            os.close(descriptor)
