"""Keeping what waits for its time when the front of its log goes: by retention, or by DeleteRecords.

No replica drops a segment that has a record that waits (log/trimming.py). Where retention would, the leader writes such
records again at the end of the log, a few hundred at a time, and the segment goes with a later look. DeleteRecords
cancels what waits with an id before its offset, and says how many that were.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable
from typing import Protocol

from headrace.log.partition_log import PartitionLog
from headrace.log.repark import cancelled, reparked
from headrace.log.schedule import Due
from headrace.replicas.office_clock import OfficeClock
from headrace.replicas.open_notes import OpenNotes
from headrace.wire.batches import NO_PRODUCER_ID
from headrace.wire.errors import KafkaError
from headrace.world.clock import Clock

logger = logging.getLogger(__name__)

_LOOK_S = 2.0
_AT_ONCE = 500  # records
_LOOKED_AT = 10_000  # of which it is asked where they lie
_CANCELLED_AT_ONCE = 10_000
_PARTITIONS = 1000


class Writable(Protocol):
    """A partition, as far as reparking is concerned."""

    @property
    def log(self) -> PartitionLog: ...

    @property
    def office(self) -> OfficeClock | None: ...

    def append_notes(self, records: memoryview) -> object: ...


class Reparking:
    def __init__(self, clock: Clock, partitions: Callable[[], Iterable[Writable]], notes: OpenNotes) -> None:
        self._clock = clock
        self._partitions = partitions
        self._notes = notes

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(_LOOK_S)
            for at, partition in enumerate(list(self._partitions()), 1):
                if partition.log.unwanted_before and partition.office is not None:
                    await self._isolated(partition)
                if at % _PARTITIONS == 0:
                    await asyncio.sleep(0)

    async def _isolated(self, partition: Writable) -> None:
        try:
            await repark(partition, partition.log.unwanted_before, self._notes)
            partition.log.trim_soon()
        except KafkaError as error:
            logger.warning("%s: records that wait are not written again, trying again: %s", partition, error)
        except Exception:  # a fault in one partition's files or code must not reach the others
            logger.exception("%s: records that wait are not written again, trying again", partition)


async def repark(partition: Writable, before: int, notes: OpenNotes) -> None:
    """Write again what waits in notes before this offset."""
    office, log = partition.office, partition.log
    for producer_id in [NO_PRODUCER_ID, *log.schedule.held]:
        from_id: int | None = 0
        while from_id is not None:
            ids, from_id = log.schedule.waiting(producer_id).in_notes_before(before, from_id, _LOOKED_AT)
            for at in range(0, len(ids), _AT_ONCE):
                some = ids[at : at + _AT_ONCE]
                waiting = log.schedule.waiting(producer_id)
                rows = [row for key in some if (row := waiting.row(key)) is not None]
                dues = [Due(due_ms, key, note) for key, due_ms, note, _ in rows]
                found = await notes.bodies(log, dues, from_0=True)
                if office is None or partition.office is not office:
                    return
                waiting = log.schedule.waiting(producer_id)
                left = [(row, part) for row, part in zip(rows, found, strict=True) if waiting.row(row[0]) == row]
                again = reparked(producer_id, left)
                if again:
                    partition.append_notes(again)
                await asyncio.sleep(0)
            await asyncio.sleep(0)


def cancel_before(partition: Writable, offset: int) -> int:
    """Cancel what waits with an id before `offset`, so that the log may start there; how many that were. What waits in
    the same notes with a later id is written again. Blocks."""
    log = partition.log
    ids = log.schedule.ids_below(offset)
    for at in range(0, len(ids), _CANCELLED_AT_ONCE):
        partition.append_notes(cancelled(ids[at : at + _CANCELLED_AT_ONCE]))
    for producer_id in [NO_PRODUCER_ID, *log.schedule.held]:
        waiting = log.schedule.waiting(producer_id)
        if waiting.lowest_note() < offset:
            left, _ = waiting.in_notes_before(offset, 0, sys.maxsize)
            rows = [row for key in left if (row := waiting.row(key)) is not None]
            found = log.bodies([Due(due_ms, key, note) for key, due_ms, note, _ in rows], from_0=True)
            partition.append_notes(reparked(producer_id, zip(rows, found, strict=True)))
    return len(ids)
