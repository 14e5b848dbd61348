"""Which leader wrote from which offset on: what replicas compare to find where their logs part (KIP-101, KIP-279).

File `leader-epoch-checkpoint`, text: a first line `headrace-leader-epochs 1`, then one line `EPOCH START_OFFSET` for
each epoch, both rising. It is replaced whole. It is written before the log's synced offset passes the start of an
epoch; later epochs are found again in the batches themselves, so appending needs no second write.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

from headrace.log.derived import EPOCH, DerivedState, LogOnDisk, Moment, Occasion, Store, StoredBatch, Trim
from headrace.log.partition_folder import PartitionFolder
from headrace.model.failure import other_version
from headrace.world.disk import Disk

logger = logging.getLogger(__name__)

NAME = "leader-epoch-checkpoint"
_NAMED, _VERSION = "headrace-leader-epochs ", "1"


class LeaderEpochs(DerivedState):
    """(epoch, start offset) pairs, both rising."""

    __slots__ = ("changed", "entries", "latest")

    hears = EPOCH

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.entries = entries or []
        self.latest = self.entries[-1][0] if self.entries else -1
        self.changed = False  # since it was last written

    def assign(self, epoch: int, start_offset: int) -> None:
        """A leader of this epoch starts at this offset. Epochs that begin no earlier have no records and go."""
        if epoch <= self.latest:
            return
        kept = [entry for entry in self.entries if entry[1] < start_offset]
        self.entries = [*kept, (epoch, start_offset)]
        self.latest = epoch
        self.changed = True

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int] | None:
        """(largest epoch not above the asked one, where it ended); None if nothing is known that far back."""
        if not self.entries or not 0 <= epoch <= self.latest:
            return None
        at = bisect_right(self.entries, (epoch, 1 << 62))
        if at == 0:
            # Asked for an epoch before the first: it ended, at the latest, where the first one begins (KIP-320).
            return epoch, self.entries[0][1]
        return self.entries[at - 1][0], self.entries[at][1] if at < len(self.entries) else log_end

    def epoch_of(self, offset: int) -> int:
        """The epoch in which an offset was written; -1 if that is not known."""
        return next((epoch for epoch, start in reversed(self.entries) if start <= offset), -1)

    def cut_tail(self, end_offset: int) -> None:
        """The log now ends at `end_offset`."""
        self._replace([entry for entry in self.entries if entry[1] < end_offset])

    def cut_head(self, start_offset: int) -> None:
        """The log now starts at `start_offset`; the epoch that covers it starts there."""
        later = [entry for entry in self.entries if entry[1] > start_offset]
        covering = [entry for entry in self.entries if entry[1] <= start_offset]
        self._replace([(covering[-1][0], start_offset), *later] if covering else later)

    def _replace(self, entries: list[tuple[int, int]]) -> None:
        if entries != self.entries:
            self.entries = entries
            self.latest = entries[-1][0] if entries else -1
            self.changed = True

    # -- as derived state ---------------------------------------------------------------------------------------------

    def load(self, log: LogOnDisk) -> int:
        stored = load(log.folder.disk, log.folder.directory)
        self.entries = [] if stored is None else stored
        self.latest = self.entries[-1][0] if self.entries else -1
        if stored is None:
            self.changed = True
            return log.start_offset
        if log.clean:
            return log.end_offset
        self.cut_tail(min(log.safe_to + 1, log.end_offset))  # also of an epoch that begins there every replica may know
        return log.safe_to

    def appended(self, batch: StoredBatch) -> None:
        self.assign(batch.header.leader_epoch, batch.header.base_offset)

    def cut_back(self, log: LogOnDisk) -> None:
        self.cut_tail(log.end_offset)

    def restarted(self, log: LogOnDisk) -> None:
        self.entries, self.latest, self.changed = [], -1, True

    def trimmed(self, trim: Trim) -> None:
        self.cut_head(trim.start_offset)

    def snapshot(self, moment: Moment) -> Store | None:
        if not self.changed or moment.occasion is Occasion.ROLL:
            return None
        return Store(partial(self._save, moment.folder), durable=True)

    def _save(self, folder: PartitionFolder) -> None:
        self.changed = False  # before the entries are read: one that comes meanwhile needs another write
        lines = [_NAMED + _VERSION, *(f"{epoch} {start}" for epoch, start in self.entries), ""]
        try:
            folder.replace_file(NAME, "\n".join(lines).encode())
        except (OSError, MemoryError):
            self.changed = True
            raise


def load(disk: Disk, directory: Path) -> list[tuple[int, int]] | None:
    """None if the file is damaged: what it said is then read from the batches. Failure if it is of a later version."""
    path = directory / NAME
    try:
        first, *lines, last = disk.read_bytes(path).decode("utf-8", "replace").split("\n")
    except FileNotFoundError:
        return []
    except ValueError:
        first, lines, last = "", [], ""
    version = first.removeprefix(_NAMED)
    if version != first and version.isdecimal() and version != _VERSION:
        raise other_version(path, version, int(_VERSION))
    try:
        entries = [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines)]
        if version != _VERSION or last or not _rising(entries):
            raise ValueError
    except ValueError:
        logger.warning("%s is damaged: it is made again from the batches", path)
        return None
    return entries


def _rising(entries: Sequence[tuple[int, int]]) -> bool:
    return all(epoch < later and start < start_later for (epoch, start), (later, start_later) in pairwise(entries))
