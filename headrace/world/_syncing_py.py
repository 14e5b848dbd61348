"""Syncs many files, one after the other: the pure-Python twin of _syncing.pyx, used if that could not be built."""

from __future__ import annotations

import errno
import os


def sync_all(descriptors: list[int]) -> list[int]:
    """One errno for each descriptor; 0 where its contents and size are on stable storage."""
    return [_sync(descriptor) for descriptor in descriptors]


def _sync(descriptor: int) -> int:
    try:
        os.fdatasync(descriptor)
    except OSError as error:
        return error.errno or errno.EIO
    return 0
