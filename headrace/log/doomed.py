"""Files that are no longer part of a log but may still be read by somebody who asked before.

They are named `*.deleted`, stay for file.delete.delay.ms, and are removed by `purge`, or at the next start.
"""

from __future__ import annotations

from headrace.log.files import PooledFile
from headrace.world.disk import Disk


class DoomedFiles:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._waiting: list[tuple[int, int, PooledFile]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def base_offsets(self) -> list[int]:
        """Of the segments whose files are still there."""
        return [base_offset for _, base_offset, _ in self._waiting]

    def add(self, file: PooledFile, base_offset: int, due_ms: int) -> None:
        file.rename(file.path.with_name(file.path.name + ".deleted"))
        self._waiting.append((due_ms, base_offset, file))

    def purge(self, now_ms: int) -> None:
        waiting, self._waiting = self._waiting, []
        for due_ms, base_offset, file in waiting:
            if due_ms <= now_ms:
                file.close()
                self._disk.remove(file.path)
            else:
                self._waiting.append((due_ms, base_offset, file))
