"""Notes that were opened to release their records, as far as memory allows: several of one note are due one by one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from headrace.log.partition_log import PartitionLog
from headrace.log.segment import NotCached
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.notes import Note

_KEPT_BYTES = 16 << 20
_ROW_BYTES = 28

Place = tuple[PartitionLog, int, int]  # a log, how often it has been cut, and the offset of the note


class OpenNotes:
    def __init__(self, off_loop: Callable[..., Awaitable[Any]]) -> None:
        self._off_loop = off_loop
        self._notes: OrderedDict[Place, tuple[Note, int]] = OrderedDict()
        self._bytes = 0

    async def open(self, log: PartitionLog, offsets: Iterable[int]) -> dict[int, Note]:
        """The notes at these offsets. Waits for the disk where they are not in memory."""
        return {offset: await self._one(log, offset) for offset in dict.fromkeys(offsets)}

    async def _one(self, log: PartitionLog, offset: int) -> Note:
        place = log, log.cuts, offset
        known = self._notes.get(place)
        if known is not None:
            self._notes.move_to_end(place)
            return known[0]
        try:
            note = log.note_at(offset, wait=False)
        except NotCached:
            note = await self._off_loop(_waited_for, log, offset)
        if note is None:
            raise KafkaError(ErrorCode.kafka_storage_error, f"{log.topic_partition} has no note at offset {offset}")
        self._keep(place, note)
        return note

    def _keep(self, place: Place, note: Note) -> None:
        size = len(note.records) + _ROW_BYTES * len(note.ids)
        if place in self._notes or size > _KEPT_BYTES:
            return
        self._notes[place] = note, size
        self._bytes += size
        while self._bytes > _KEPT_BYTES:
            _, (_, gone) = self._notes.popitem(last=False)
            self._bytes -= gone


def _waited_for(log: PartitionLog, offset: int) -> Note | None:
    return log.note_at(offset, wait=True)
