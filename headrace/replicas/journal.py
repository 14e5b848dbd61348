"""Internal topics as journals: records in, and everything that was ever written out again.

The coordinators keep their state this way. An append is in the log when the call returns, in the order of the calls;
it counts once committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from headrace.replicas.host import ReplicaHost
from headrace.wire.batches import walk
from headrace.wire.records import Record, encode_batch, iterate
from headrace.world.clock import Clock

_READ_BYTES = 1 << 20


class TopicJournal:
    def __init__(self, host: ReplicaHost, clock: Clock, off_loop: Callable[..., Awaitable[Any]]) -> None:
        self._host = host
        self._clock = clock
        self._off_loop = off_loop

    def append(
        self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes | None]]
    ) -> Awaitable[None]:
        """Write at once; the awaitable ends when the records are committed. Raises KafkaError if they are not."""
        now = self._clock.now_ms()
        batch = encode_batch([Record(index, now, key, value, ()) for index, (key, value) in enumerate(records)])
        hosted = self._host.find(topic, partition)
        appended = hosted.append(memoryview(batch), internal=True)
        waiting = hosted.committed(appended)
        if waiting is None:
            waiting = asyncio.get_running_loop().create_future()
            waiting.set_result(None)
        return waiting

    async def read(
        self, topic: str, partition: int
    ) -> AsyncIterator[Sequence[tuple[int, bytes, bytes | None, int]]]:
        """Everything committed, in order: (offset, key, value, timestamp), in chunks."""
        hosted = self._host.find(topic, partition)
        offset = hosted.log.start_offset
        while offset < hosted.high_watermark:
            found = hosted.read(offset, _READ_BYTES, at_least_one=True)
            data = await self._off_loop(found.load)
            chunk = []
            after = offset
            for record in iterate(data):
                after = max(after, record.offset + 1)
                if record.offset >= offset and record.key is not None:
                    chunk.append((record.offset, record.key, record.value, record.timestamp))
            if chunk:
                yield chunk
            offset = after if after > offset else _next_batch(data, offset)


def _next_batch(data: bytes, offset: int) -> int:
    """Past batches that compaction has emptied."""
    return max((header.next_offset for _, header in walk(data)), default=offset + 1)
