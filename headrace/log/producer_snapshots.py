"""The producers of a log (producer_state.py) as derived state (derived.py): told of batches, stored in snapshots.

Files `NNN.snapshot`: the state after all batches before offset NNN. They are written where a segment begins and with a
checkpoint, without a sync, and a missing or damaged one is no error: the state is then made from an older one and the
batches behind it. Only the one where a log begins after its first segments went is synced before (`secure`). After a
crash only those up to the recovery point are believed. Kept are those at which a segment begins and those of the last
two recovery points, because the newest checkpoint may be lost.
"""

from __future__ import annotations

import logging

from headrace.log import producer_state
from headrace.log.derived import MARKER, PRODUCER, DerivedState, LogOnDisk, Moment, Occasion, Store, StoredBatch, Trim
from headrace.log.partition_folder import PartitionFolder
from headrace.log.producer_state import ProducerLimits, ProducerStates
from headrace.log.segment import segment_path

logger = logging.getLogger(__name__)

SUFFIX = ".snapshot"


class ProducerSnapshots(DerivedState):
    __slots__ = ("_stored", "expiry_ms", "states")

    hears = PRODUCER | MARKER
    suffixes = (SUFFIX,)

    def __init__(self, limits: ProducerLimits) -> None:
        self.states = ProducerStates(limits.most)
        self.expiry_ms = limits.expiry_ms
        self._stored: tuple[int, ...] = ()  # the offsets of snapshots

    def load(self, log: LogOnDisk) -> int:
        return self._load_into(self.states, log)

    def _load_into(self, states: ProducerStates, log: LogOnDisk) -> int:
        self._stored = tuple(log.named(SUFFIX))
        if not log.clean:
            self._remove([offset for offset in self._stored if offset > log.safe_to], log.folder)
        point = log.checkpoint
        if log.safe_to == point.recovery_point and not point.has_producers:
            return log.safe_to
        return newest(states, log.folder, [offset for offset in self._stored if offset <= log.safe_to])

    def appended(self, batch: StoredBatch) -> None:
        self.states.remember_batch(batch.header, batch.marker, batch.now_ms)

    def cut_back(self, log: LogOnDisk) -> None:
        states = ProducerStates(self.states.most)  # made aside: somebody may be asking for open transactions
        for batch in log.batches(self._load_into(states, log)):
            states.remember_batch(batch.header, batch.marker, batch.now_ms)
        self.states.become(states)

    def restarted(self, log: LogOnDisk) -> None:
        self._remove(list(self._stored), log.folder)
        self.states.become(ProducerStates())

    def trimmed(self, trim: Trim) -> None:
        self.states.expire(trim.now_ms - self.expiry_ms)

    def snapshot(self, moment: Moment) -> Store | None:
        if moment.occasion not in (Occasion.CHECKPOINT, Occasion.ROLL):
            return None
        offset, folder = moment.end_offset, moment.folder
        rolls = moment.occasion is Occasion.ROLL
        moment.fields["has_producers"] = bool(self.states)
        encoded = self.states.encode() if self.states or rolls else None
        needed = {offset, folder.checkpoint.recovery_point, *moment.bases}
        surplus = [] if rolls else [stored for stored in self._stored if stored not in needed]

        def write() -> None:
            if encoded is not None:
                self._write(offset, encoded, folder)
            self._remove(surplus, folder)

        return Store(write, durable=False)

    def secure(self, offset: int, folder: PartitionFolder) -> None:
        """Put the snapshot at this offset on stable storage: the batches before it go, and it alone has what they said.
        Blocks."""
        if offset not in self._stored:
            return
        try:
            file = folder.disk.open(segment_path(folder.directory, offset, SUFFIX))
        except FileNotFoundError:
            return
        try:
            file.sync()
        finally:
            file.close()
        folder.disk.sync_dir(folder.directory)

    def _write(self, offset: int, encoded: bytes, folder: PartitionFolder) -> None:
        try:
            file = folder.disk.open(segment_path(folder.directory, offset, SUFFIX), create=True)
            try:
                file.truncate(0)
                file.append((encoded,))
            finally:
                file.close()
        except (OSError, MemoryError):
            return
        if offset not in self._stored:
            self._stored += (offset,)

    def _remove(self, offsets: list[int], folder: PartitionFolder) -> None:
        self._stored = tuple(stored for stored in self._stored if stored not in offsets)
        for offset in offsets:
            folder.disk.remove(segment_path(folder.directory, offset, SUFFIX))


def newest(states: ProducerStates, folder: PartitionFolder, offsets: list[int]) -> int:
    """Fill `states` from the newest usable snapshot among these; from which offset on batches are not in it."""
    for offset in sorted(offsets, reverse=True):
        path = segment_path(folder.directory, offset, SUFFIX)
        try:
            found = producer_state.decode(folder.disk.read_bytes(path))
        except FileNotFoundError:
            continue
        if found is not None:
            states.become(found)
            return offset
        logger.warning("%s is damaged or of another version: the producers are found again in the batches", path)
    return 0
