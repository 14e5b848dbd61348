"""Fetch, where it asks for views: looks at what they deliver, and waits until there is enough.

Every look is carried out in one thread of its own, so that neither the event loop nor whoever waits for the disk waits
for a decompression; a bounded number of them waits for that thread, and one look opens about a megabyte, so they take
turns. A fetch that has found nothing waits for new records and looks again from where it stopped, at most every 20 ms.
In the end it is given what was found and, where that does not reach as far as was looked, one marker over the rest
(log/visible.py): so its position moves, and its lag becomes 0. A marker does not count towards min_bytes.

Partitions of other topics in the same fetch are read as always (fetch_reading.py).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping

from msgspec import Struct

from headrace.api.contract import Steps
from headrace.api.fetch_reading import Attempt, FetchReading, PartitionRead, PartitionReader
from headrace.api.fetch_sessions import WantedPartition
from headrace.api.pieces import PIECE, settled
from headrace.api.view_content import Look, ViewContent, content_of
from headrace.log.reading import Slice
from headrace.log.tag_search import KeptBatches
from headrace.log.visible import closed
from headrace.model.image import TopicImage
from headrace.replicas.partition import Partition
from headrace.replicas.waiters import Audience, Wait
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from headrace.world.clock import Clock
from headrace.world.threads import Computing

logger = logging.getLogger(__name__)

_PAUSE_S = 0.02
_MOST_LOOKS = 32  # that wait for the thread


class ViewCount(Struct):
    """What reading one view has cost since the start."""

    name: str
    scanned_bytes: int = 0  # of the base's log
    sent_bytes: int = 0
    read_s: float = 0.0  # when it was last read, monotonic


class Views:
    """All that this broker delivers of views."""

    def __init__(self, scanning: Computing, clock: Clock) -> None:
        self.counts: dict[uuid.UUID, ViewCount] = {}
        self._scanning = scanning
        self._clock = clock
        self._turn = asyncio.Semaphore(_MOST_LOOKS)
        self._kept = KeptBatches()
        self._contents: dict[uuid.UUID, ViewContent] = {}

    def content(self, view: TopicImage) -> ViewContent:
        known = self._contents.get(view.id)
        if known is None:
            known = self._contents[view.id] = content_of(view, self._kept)
        return known

    def count(self, view: TopicImage) -> ViewCount:
        known = self.counts.get(view.id)
        if known is None:
            known = self.counts[view.id] = ViewCount(view.name)
        known.read_s = self._clock.monotonic()
        return known

    def forget(self, view_id: uuid.UUID) -> None:
        """The view was deleted."""
        self._contents.pop(view_id, None)
        self.counts.pop(view_id, None)

    async def look(self, view: TopicImage, partition: Partition, offset: int, max_bytes: int, *, stable: bool) -> Look:
        content, count = self.content(view), self.count(view)
        async with self._turn:
            look = await self._scanning.off_loop(content.look(partition, offset, max_bytes, stable=stable))
        count.scanned_bytes += look.scanned_bytes
        count.sent_bytes += len(look.records)
        return look


class _Seen(Struct):
    """What a fetch has seen of one partition of a view so far."""

    next_offset: int
    records: bytearray
    last: int = 0
    at_end: bool = False
    epoch: int = -1

    def add(self, look: Look) -> None:
        if look.records:
            self.last = len(self.records) + look.last
            self.records += look.records
        self.next_offset, self.at_end, self.epoch = look.next_offset, look.at_end, look.epoch

    def given(self, offset: int) -> bytes:
        """What the reader at `offset` is sent."""
        if self.records and not self.at_end:
            return bytes(self.records)
        return bytes(closed(self.records, self.last, offset, self.next_offset, self.epoch))


_Key = tuple[str, uuid.UUID | None, int]


class ViewFetch:
    """One fetch. `answer` is called once."""

    def __init__(
        self, reading: FetchReading, views: Views, reader: PartitionReader[WantedPartition], body: Message, clock: Clock
    ) -> None:
        self._reading = reading
        self._views = views
        self._reader = reader
        self._clock = clock
        self._max_bytes: int = body.max_bytes
        self._wanted_bytes: int = min(body.min_bytes, body.max_bytes)
        self._until: float = clock.monotonic() + body.max_wait_ms / 1000
        self._seen: dict[_Key, _Seen] = {}

    async def answer(self, attempt: Attempt[WantedPartition], *, may_wait: bool) -> Message:
        while True:
            begun = self._clock.monotonic()
            await self._look(attempt)
            size = attempt.size + sum(len(seen.records) for seen in self._seen.values())
            if attempt.urgent or size >= self._wanted_bytes or not may_wait or self._left_s <= 0:
                break
            if all(seen.at_end for seen in self._seen.values()):
                await self._wait(attempt, begun)
            attempt = await self._again(attempt)
        self._give(attempt, self._max_bytes)
        reading = self._reading
        return await settled(await reading.pieces.finish(reading.answer(attempt, self._shorter)))

    @property
    def _left_s(self) -> float:
        return self._until - self._clock.monotonic()

    async def _again(self, attempt: Attempt[WantedPartition]) -> Attempt[WantedPartition]:
        return await self._reading.pieces.finish(self._reading.read(attempt.plan, self._max_bytes, self._reader))

    async def _look(self, attempt: Attempt[WantedPartition]) -> None:
        left = self._max_bytes - attempt.size - sum(len(seen.records) for seen in self._seen.values())
        for at, (read, view, partition) in enumerate(_views(attempt), 1):
            if at % PIECE == 0:
                await asyncio.sleep(0)
            seen = self._seen.setdefault(_key(read), _Seen(read.wanted.offset, bytearray()))
            room = min(left, read.wanted.max_bytes - len(seen.records))
            content, stable = self._views.content(view), self._reader.stable
            if content.end(partition, stable=stable) <= seen.next_offset:
                seen.at_end = True
                seen.epoch = partition.leader_epoch if seen.epoch == -1 else seen.epoch
                self._views.count(view)
            elif room > 0 or not any(other.records for other in self._seen.values()):
                try:
                    look = await self._views.look(view, partition, seen.next_offset, max(room, 0), stable=stable)
                except OSError as error:
                    logger.error("view %s: partition %s cannot be read: %s", view.name, partition, error)
                    read.partition, read.slice, read.error = None, None, ErrorCode.kafka_storage_error
                    attempt.urgent = True
                    continue
                seen.add(look)
                left -= len(look.records)
            else:
                seen.at_end = False

    async def _wait(self, attempt: Attempt[WantedPartition], begun: float) -> None:
        """For new records, and until the last look is 20 ms ago; longer if it took long, as for many partitions."""
        spent_s = self._clock.monotonic() - begun
        audience = Audience.STABLE if self._reader.stable else Audience.COMMITTED
        partitions = [read.partition for read in attempt.reads if read.partition is not None]
        wait = Wait(partitions, audience, 1, self._left_s, self._clock)  # before it is seen whether some came meanwhile
        try:
            fresh = await self._again(attempt)
            if not (fresh.urgent or fresh.size > attempt.size or self._has_more(fresh)):
                await wait.due
        finally:
            wait.due.cancel()
        pause_s = min(self._left_s, begun + max(_PAUSE_S, 4 * spent_s) - self._clock.monotonic())
        if pause_s > 0:
            await self._clock.sleep(pause_s)

    def _has_more(self, attempt: Attempt[WantedPartition]) -> bool:
        for read, view, partition in _views(attempt):
            seen = self._seen.get(_key(read))
            end = self._views.content(view).end(partition, stable=self._reader.stable)
            if seen is None or end > seen.next_offset:
                return True
        return False

    def _give(self, attempt: Attempt[WantedPartition], room: int) -> None:
        """Put what was seen into the attempt, as far as there is room for it."""
        for read, _, _ in _views(attempt):
            seen = self._seen.get(_key(read))
            given = b"" if seen is None else seen.given(read.wanted.offset)
            if given and (attempt.size == 0 or attempt.size + len(given) <= room):
                read.slice, read.records = Slice(len(given), kept=given), None
                attempt.size += len(given)

    def _shorter(self, attempt: Attempt[WantedPartition], room: int) -> Steps[Attempt[WantedPartition]]:
        fresh = yield from self._reading.read(attempt.plan, min(self._max_bytes, room), self._reader)
        self._give(fresh, room)
        return fresh


def _views(
    attempt: Attempt[WantedPartition],
) -> list[tuple[PartitionRead[WantedPartition], TopicImage, Partition]]:
    """What can be read of views."""
    return [
        (read, read.view, read.partition)
        for read in attempt.reads
        if read.view is not None and read.partition is not None and read.slice is not None
    ]


def _key(read: PartitionRead[WantedPartition]) -> _Key:
    return read.wanted.topic, read.wanted.topic_id, read.wanted.index


def view_counts(views: Views, known: Mapping[uuid.UUID, TopicImage]) -> list[ViewCount]:
    """Of the views that there are."""
    for gone in [view_id for view_id in views.counts if view_id not in known]:
        views.forget(gone)
    return list(views.counts.values())
