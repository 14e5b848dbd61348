"""Putting a compacted file in the place of sealed segments, so that a crash leaves the one or the others.

Called by PartitionLog for compaction.py. The file counts from the moment when it has been renamed to `.swap` durably;
recovery finishes the rest (recovery.py).
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from headrace.log import recovery
from headrace.log.derived import Join
from headrace.log.doomed import DoomedFiles
from headrace.log.durability import Durability
from headrace.log.failing import interrupted, write_failed
from headrace.log.indexes import SegmentIndex
from headrace.log.partition_folder import PartitionFolder
from headrace.log.segment import Segment, Shelf, segment_path
from headrace.log.states import LogStates
from headrace.log.tail import LogTail
from headrace.world.disk import is_lack


class Swap(Struct, frozen=True):
    """What compaction wants to put in the place of what."""

    old: tuple[Segment, ...]
    cleaned: Path
    """A file that is synced."""
    cleaned_to: int
    """Everything before this offset has been compacted when the swap is done."""
    cuts: int
    """The log's count of truncations when the run began: what was dropped may have been dropped for their sake."""


class Swapping:
    __slots__ = ("_doomed", "_durability", "_folder", "_shelf", "_states", "_tail")

    def __init__(
        self,
        shelf: Shelf,
        tail: LogTail,
        folder: PartitionFolder,
        states: LogStates,
        durability: Durability,
        doomed: DoomedFiles,
    ) -> None:
        self._shelf = shelf
        self._tail = tail
        self._folder = folder
        self._states = states
        self._durability = durability
        self._doomed = doomed

    def replace_segments(self, wanted: Swap, index: SegmentIndex, dropped_markers: Collection[int]) -> bool:
        """Put a compacted file in the place of sealed segments, from which these markers are gone; crash-safe, blocks.

        False if the log was truncated meanwhile or they are no longer all there; then nothing is done.
        """
        tail, old = self._tail, wanted.old
        with self._durability.sync_lock:
            with tail.lock:
                if tail.offline is not None or tail.cuts != wanted.cuts or not set(old) <= set(tail.segments[:-1]):
                    return False
                following = tail.segments[tail.segments.index(old[-1]) + 1].base_offset
                bases = [segment.base_offset for segment in tail.segments]
            changes: dict[str, Any] = {"cleaned_to": wanted.cleaned_to, "thinned": True}
            if self._folder.checkpoint.segment < following:  # no position in a file that is about to change
                changes |= {"recovery_point": following, "segment": following, "position": 0}
                changes |= {"has_producers": True, "first_append_ms": -1}
            self._tell_states(Join(self._folder, bases, old[0].base_offset, following, dropped_markers, tail.lock))
            fresh = Segment(
                self._shelf, self._folder.directory, old[0].base_offset, index.covered, tail.config.index_interval_bytes
            )
            fresh.adopt_index(index)
            encoded = fresh.encode_index()
            cleaned_before = self._folder.checkpoint.cleaned_to
            self._durability.settle(**changes)
            try:
                self._swap_files(wanted, following)
            except (OSError, MemoryError):  # not yet: the next run has to begin where this one did
                self._folder.checkpoint = replace(self._folder.checkpoint, cleaned_to=cleaned_before)
                raise
            fresh.store_index(encoded)
            with tail.lock:
                at = tail.segments.index(old[0])
                tail.segments = (*tail.segments[:at], fresh, *tail.segments[at + len(old) :])
            return True

    def _tell_states(self, join: Join) -> None:
        try:
            for state in self._states.walk:
                state.joining(join)
        except (OSError, MemoryError) as error:
            raise write_failed(self._tail, error) from error

    def _swap_files(self, wanted: Swap, following: int) -> None:
        disk, directory, first = self._shelf.disk, self._folder.directory, wanted.old[0].base_offset
        swap = directory / recovery.swap_name(first, following)
        due_ms = self._tail.now_ms + self._tail.config.file_delete_delay_ms
        self._announce(wanted.cleaned, swap)
        try:
            self._doomed.add(wanted.old[0], due_ms, replaced=True)
            for segment in wanted.old[1:]:
                self._doomed.add(segment, due_ms)
            self._sync_names()
            disk.rename(swap, segment_path(directory, first, ".log"))
            self._sync_names()
        except (OSError, MemoryError) as error:
            raise interrupted(self._tail, error) from error

    def _announce(self, cleaned: Path, swap: Path) -> None:
        """From now on the compacted file counts, also after a crash. If descriptors are lacking, it does not."""
        disk = self._shelf.disk
        self._folder.names_unsynced = True
        try:
            disk.rename(cleaned, swap)
            disk.sync_dir(self._folder.directory)
        except (OSError, MemoryError) as error:
            if not is_lack(error):
                raise interrupted(self._tail, error) from error
            disk.rename(swap, cleaned)
            raise

    def _sync_names(self) -> None:
        """If descriptors are lacking, the next sync of the log does it: a crash before that leaves some of the changes
        undone, from the last one back, and recovery finishes them."""
        self._folder.names_unsynced = True
        try:
            self._folder.sync_names()
        except (OSError, MemoryError) as error:
            if not is_lack(error):
                raise
            self._tail.grown()
