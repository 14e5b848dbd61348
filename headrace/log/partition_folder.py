"""The folder of one partition: its checkpoint, and which names in it are on stable storage.

A part of a log; used by whatever of it writes files. A file that was made, renamed or removed is safe only once the
folder is synced: whoever changes a name says so with `names_unsynced`, and `sync_names` makes up for all of them. The
folder of a new partition becomes durable with its first records (`make_permanent`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from headrace.log import checkpoint as checkpoints
from headrace.log import identity
from headrace.log.checkpoint import Checkpoint
from headrace.log.segment import segment_path
from headrace.world.disk import Disk


class PartitionFolder:
    __slots__ = ("_is_new", "abandoned", "checkpoint", "directory", "disk", "names_unsynced", "topic_id")

    def __init__(self, disk: Disk, directory: Path, topic_id: uuid.UUID, checkpoint: Checkpoint) -> None:
        self.disk = disk
        self.directory = directory
        self.topic_id = topic_id
        self.checkpoint = checkpoint
        self.names_unsynced = True
        self.abandoned = False  # the name may be another log's by now: nothing is written any more
        self._is_new = checkpoint.generation == 0

    def names(self) -> list[str]:
        """The files in it; none before the first record of the partition."""
        return self.disk.list_dir(self.directory) if self.disk.exists(self.directory) else []

    def make_permanent(self) -> None:
        """Make the folder of a new partition durable, with a first checkpoint and its identity; blocks."""
        if self._is_new:
            self.checkpoint = checkpoints.settle(self.disk, self.directory, self.checkpoint)
            identity.sync(self.disk, self.directory)
            self.disk.sync_dir(self.directory.parent)
            self._is_new = False

    def sync_names(self) -> None:
        """Every name in the folder is on stable storage when this returns; blocks."""
        if self.names_unsynced:
            self.names_unsynced = False  # before the sync: a name that is made meanwhile needs another one
            try:
                self.disk.sync_dir(self.directory)
            except (OSError, MemoryError):
                self.names_unsynced = True
                raise

    def replace_file(self, name: str, data: bytes) -> None:
        """Write a file as a whole, durably; that syncs all other names as well. Blocks."""
        self.names_unsynced = False
        try:
            self.disk.write_atomic(self.directory / name, data)
        except (OSError, MemoryError):
            self.names_unsynced = True
            raise

    def settle(self, **changes: Any) -> None:
        """Change the checkpoint durably. It is no longer that of a clean stop; the next clean stop makes it so."""
        following = replace(self.checkpoint, clean=False, **changes)
        self.checkpoint = checkpoints.settle(self.disk, self.directory, following)

    def hint(self, moved: Checkpoint) -> None:
        """Move the recovery point on, without waiting for the disk."""
        checkpoints.hint(self.disk, self.directory, moved)
        self.checkpoint = moved

    def remove(self, base_offset: int, suffixes: Iterable[str]) -> None:
        """Remove the files of a segment that have these suffixes, as far as they are there."""
        for suffix in suffixes:
            self.disk.remove(segment_path(self.directory, base_offset, suffix))
        self.names_unsynced = True
