"""Segments that are no longer part of a log, but whose files may still be read by a request that began before.

The .log files are named `*.deleted`, stay for file.delete.delay.ms, and are removed by `purge`, or at the next start.
What lies beside a segment, indexes and files of derived states, goes at once.
"""

from __future__ import annotations

from headrace.log.files import PooledFile
from headrace.log.partition_folder import PartitionFolder
from headrace.log.segment import INDEX_SUFFIXES, Segment, Shelf
from headrace.log.states import LogStates


class DoomedFiles:
    __slots__ = ("_folder", "_shelf", "_states", "_waiting")

    def __init__(self, shelf: Shelf, folder: PartitionFolder, states: LogStates) -> None:
        self._shelf = shelf
        self._folder = folder
        self._states = states
        self._waiting: tuple[tuple[int, int, PooledFile], ...] = ()

    def __len__(self) -> int:
        return len(self._waiting)

    def base_offsets(self) -> list[int]:
        """Of the segments whose files are still there."""
        return [base_offset for _, base_offset, _ in self._waiting]

    def add(self, segment: Segment, due_ms: int, *, replaced: bool = False) -> None:
        """Take a segment's files away; reads that have begun may finish. `replaced`: another segment takes its name, so
        what derived states know of it stays."""
        self._shelf.indexes.forget(segment)
        segment.file.rename(segment.file.path.with_name(segment.file.path.name + ".deleted"))
        self._waiting += ((due_ms, segment.base_offset, segment.file),)
        of_states = () if replaced else self._states.suffixes()
        self._folder.remove(segment.base_offset, (*INDEX_SUFFIXES, *of_states))

    def purge(self, now_ms: int) -> None:
        for due_ms, _, file in self._waiting:
            if due_ms <= now_ms:
                file.close()
                self._shelf.disk.remove(file.path)
        self._waiting = tuple(waiting for waiting in self._waiting if waiting[0] > now_ms)
