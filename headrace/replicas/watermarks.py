"""The file of high watermarks: a hint for the time after a restart.

A replica that restarts knows where its log ends, but not how much of it is committed. A follower learns that from its
leader. A leader finds out when the others fetch; until then, and if no other replica is left to fetch, consumers may
read up to the offset in this file. What was committed stays committed, so an old file names too low an offset, never
one too high. Owned by replicas.host, which writes it every few seconds and at a clean stop.

File `high-watermarks`, text: a first line `headrace-high-watermarks 1`, then one line `TOPIC_ID PARTITION OFFSET` for
each partition with more than one replica. It is replaced as a whole. A file of another version or with an invalid line
is ignored.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from pathlib import Path

from headrace.world.disk import Disk

logger = logging.getLogger(__name__)

NAME = "high-watermarks"
_FIRST_LINE = "headrace-high-watermarks 1"


class Watermarks:
    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._path = folder / NAME
        self._known: dict[tuple[uuid.UUID, int], int] = {}

    def load(self) -> None:
        try:
            lines = self._disk.read_bytes(self._path).decode().split("\n")
            if lines[0] != _FIRST_LINE:
                return
            fields = (line.split() for line in lines[1:] if line)
            self._known = {(uuid.UUID(topic), int(partition)): int(offset) for topic, partition, offset in fields}
        except (FileNotFoundError, ValueError):
            self._known = {}

    def known(self, topic_id: uuid.UUID, partition: int) -> int:
        return self._known.get((topic_id, partition), 0)

    def save(self, offsets: Mapping[tuple[uuid.UUID, int], int]) -> None:
        """Blocks. If the disk is full, the old file stays, and the next save tries again."""
        if offsets == self._known:
            return
        lines = [
            _FIRST_LINE,
            *(f"{topic_id} {partition} {offset}" for (topic_id, partition), offset in offsets.items()),
            "",
        ]
        try:
            self._disk.write_atomic(self._path, "\n".join(lines).encode())
        except OSError as error:
            logger.warning("cannot write %s: %s", self._path, error)
        else:
            self._known = dict(offsets)
