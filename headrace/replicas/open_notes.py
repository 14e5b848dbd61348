"""The tables of notes whose records are due, as far as memory allows: those of one note are due one by one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from headrace.log.note_bodies import NoteTable, bodies, missing, table_at
from headrace.log.partition_log import PartitionLog
from headrace.log.schedule import Due
from headrace.log.segment import NotCached, Segment
from headrace.wire.batches import Buffer
from headrace.wire.errors import ErrorCode, KafkaError

_KEPT_BYTES = 16 << 20

Place = tuple[PartitionLog, int, int]  # a log, how often it has been cut, and the offset of the note


class OpenNotes:
    def __init__(self, off_loop: Callable[..., Awaitable[Any]]) -> None:
        self._off_loop = off_loop
        self._tables: OrderedDict[Place, NoteTable] = OrderedDict()
        self._bytes = 0

    async def bodies(self, log: PartitionLog, dues: Sequence[Due], *, from_0: bool = False) -> list[Buffer]:
        """The bytes of these records; `from_0`: with times that count from 0. Waits for the disk where they are not in
        memory."""
        cuts, segments = log.cuts, log.segments
        tables = self._known(log, cuts, dues)
        try:
            found, more = _read(log, segments, tables, dues, False, from_0)
        except NotCached:
            found, more = await self._off_loop(_read, log, segments, tables, dues, True, from_0)
        for offset, table in more.items():
            self._keep((log, cuts, offset), table)
        return found

    def _known(self, log: PartitionLog, cuts: int, dues: Sequence[Due]) -> dict[int, NoteTable]:
        tables: dict[int, NoteTable] = {}
        for offset in dict.fromkeys(due.note for due in dues):
            table = self._tables.get((log, cuts, offset))
            if table is not None and table.segment in log.segments:  # compaction may have replaced it
                self._tables.move_to_end((log, cuts, offset))
                tables[offset] = table
        return tables

    def _keep(self, place: Place, table: NoteTable) -> None:
        before = self._tables.pop(place, None)
        self._bytes += table.size - (0 if before is None else before.size)
        self._tables[place] = table
        while self._bytes > _KEPT_BYTES:
            _, gone = self._tables.popitem(last=False)
            self._bytes -= gone.size


def _read(
    log: PartitionLog,
    segments: Sequence[Segment],
    known: dict[int, NoteTable],
    dues: Sequence[Due],
    wait: bool,
    from_0: bool,
) -> tuple[list[Buffer], dict[int, NoteTable]]:
    """The records, and the tables that had to be read."""
    more: dict[int, NoteTable] = {}
    for offset in missing(known, dues):
        table = table_at(segments, offset, wait=wait)
        if table is None:
            raise KafkaError(ErrorCode.kafka_storage_error, f"{log.topic_partition} has no note at offset {offset}")
        more[offset] = table
    return bodies(known | more, dues, wait=wait, from_0=from_0), more
