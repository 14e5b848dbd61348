"""Speed of a plain sequential write and read of a file, to compare the brokers' MB/s with.

Called by run.py once per round. "Page cache" is what both brokers' default flush mode uses: the write returns when the
kernel has the bytes, the read comes from memory. "Disk" waits for the device: fsync after the write, and the cached
pages dropped before the read.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from bench.figures import Samples

BLOCK = b"headrace" * (1024 * 1024 // 8)
FILE = "a plain file"


def measure(folder: Path, size_bytes: int, samples: Samples) -> None:
    path = folder / "sequential"
    blocks = size_bytes // len(BLOCK)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.sync()
        begin = time.monotonic()
        for _ in range(blocks):
            os.write(descriptor, BLOCK)
        written = time.monotonic()
        os.fsync(descriptor)
        synced = time.monotonic()
        cached_seconds = _read(descriptor, blocks)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        cold_seconds = _read(descriptor, blocks)
    finally:
        os.close(descriptor)
        path.unlink()
    megabytes = blocks * len(BLOCK) / 1e6
    samples.add("file.write", FILE, megabytes / (written - begin))
    samples.add("file.write_synced", FILE, megabytes / (synced - begin))
    samples.add("file.read", FILE, megabytes / cached_seconds)
    samples.add("file.read_cold", FILE, megabytes / cold_seconds)


def _read(descriptor: int, blocks: int) -> float:
    into = [bytearray(len(BLOCK))]
    begin = time.monotonic()
    for block in range(blocks):
        os.preadv(descriptor, into, block * len(BLOCK))
    return time.monotonic() - begin
