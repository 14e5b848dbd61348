"""Internal topics as journals: the coordinators append their records and read all of them back after an election.

Called by the coordinators' runtime. An append is in the log when the call returns, in the order of the calls; it counts
once it is committed. Records may belong to a producer's transaction: then its end is among the entries that are read
back, and the reader matches the two.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

from headrace.log.appended import Appended
from headrace.model.journal_entry import NO_PRODUCER_ID, JournalEntry
from headrace.model.transaction_end import TransactionEnd
from headrace.replicas.host import ReplicaHost
from headrace.replicas.partition import Partition
from headrace.wire.batches import TRANSACTIONAL, BatchHeader, walk
from headrace.wire.end_markers import read_marker
from headrace.wire.records import Record, decode, encode_batch
from headrace.world.clock import Clock

_READ_BYTES = 1 << 20


class TopicJournal:
    def __init__(self, host: ReplicaHost, clock: Clock, off_loop: Callable[..., Awaitable[Any]]) -> None:
        self._host = host
        self._clock = clock
        self._off_loop = off_loop

    def check_leads(self, topic: str, partition: int) -> None:
        """KafkaError if this broker does not lead the partition, or is out of touch and may have been replaced."""
        self._host.find(topic, partition).check_leader(-1)

    def append(
        self,
        topic: str,
        partition: int,
        records: Sequence[tuple[bytes, bytes | None]],
        *,
        producer: tuple[int, int] | None = None,
    ) -> Awaitable[None]:
        """Write at once; the awaitable ends when the records are committed. Raises KafkaError if they are not."""
        now = self._clock.now_ms()
        contents = [Record(index, now, key, value, ()) for index, (key, value) in enumerate(records)]
        hosted = self._host.find(topic, partition)
        hosted.check_enough_replicas()
        if producer is None:
            appended = hosted.append(memoryview(encode_batch(contents)), internal=True)
        else:
            producer_id, epoch = producer
            batch = encode_batch(contents, producer_id=producer_id, producer_epoch=epoch, attributes=TRANSACTIONAL)
            appended = hosted.append(memoryview(batch), internal=True, transactional=True)
        return _committed(hosted, appended)

    def append_end(self, topic: str, partition: int, end: TransactionEnd) -> Awaitable[None]:
        """Write the end of a producer's transaction, as `append` does."""
        hosted = self._host.find(topic, partition)
        hosted.check_enough_replicas()
        return _committed(hosted, hosted.append_end(end))

    def end_offset(self, topic: str, partition: int) -> int:
        return self._host.find(topic, partition).log.end_offset

    def prune(self, topic: str, partition: int, before: int) -> None:
        """Forget everything before this offset, which is committed. KafkaError if this broker does not lead."""
        hosted = self._host.find(topic, partition)
        if before > hosted.log.start_offset:
            hosted.delete_records(before)

    async def read(self, topic: str, partition: int) -> AsyncIterator[Sequence[JournalEntry]]:
        """Everything stored, in order, in chunks. Waits first until all of it is committed: an earlier leader may have
        acknowledged records that this one does not know to be committed yet."""
        hosted = self._host.find(topic, partition)
        offset, end = hosted.log.start_offset, hosted.log.end_offset
        waiting = hosted.committed_log.committed_through(end - 1)
        if waiting is not None:
            await waiting
        while offset < end:
            found = hosted.log.read(offset, _READ_BYTES, end, at_least_one=True)
            data = await self._off_loop(found.load)
            chunk: list[JournalEntry] = []
            after = offset + 1
            for at, header in walk(data):
                after = max(after, header.next_offset)
                chunk.extend(entry for entry in _entries(data, at, header) if entry.offset >= offset)
            if chunk:
                yield chunk
            offset = after


def _entries(data: bytes, at: int, header: BatchHeader) -> Iterator[JournalEntry]:
    """The entries of one batch; none if compaction has emptied it."""
    if header.is_control:
        end = read_marker(data, at)
        if end is not None:
            yield JournalEntry(header.base_offset, None, None, header.max_timestamp, header.producer_id, end.commit)
        return
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
    for record in decode(data, at):
        if record.key is not None:
            yield JournalEntry(record.offset, record.key, record.value, record.timestamp, producer_id)


def _committed(hosted: Partition, appended: Appended) -> Awaitable[None]:
    waiting = hosted.committed(appended)
    if waiting is None:
        waiting = asyncio.get_running_loop().create_future()
        waiting.set_result(None)
    return waiting
