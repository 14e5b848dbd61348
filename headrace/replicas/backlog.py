"""The partitions that a new image of the cluster has changed and that were not looked at yet, in their order.

A client may create or delete ten thousand partitions with one request, and each takes about a tenth of a millisecond to
open or to let go. So the host of the partitions takes them from here a few at a time: the first ones in the call that
reports the change, the others in `run`, with a turn for everybody else in between.

Owned by replicas.host. Invariants: a partition is let go before a later one of the same name is opened, since both
happen in the order of the calls; what waits is bounded by the partitions there are, since one that waits already is not
added again.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Iterable

from headrace.replicas.partition import Partition
from headrace.wire.errors import KafkaError

AT_ONCE = 50

_Job = tuple[uuid.UUID, int] | tuple[Partition, KafkaError]


class Backlog:
    def __init__(
        self, let_go: Callable[[Partition, KafkaError], None], look_at: Callable[[uuid.UUID, int], None]
    ) -> None:
        """Neither of the two raises."""
        self._let_go = let_go
        self._look_at = look_at
        self._jobs: deque[_Job] = deque()
        self._waiting: dict[uuid.UUID, set[int]] = {}
        self._more = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._jobs)

    def look_at(self, topic_id: uuid.UUID, indexes: Iterable[int]) -> None:
        waiting = self._waiting.setdefault(topic_id, set())
        for index in indexes:
            if index not in waiting:
                waiting.add(index)
                self._jobs.append((topic_id, index))

    def drop(self, topic_id: uuid.UUID, partitions: Iterable[Partition], why: KafkaError) -> None:
        self._waiting.pop(topic_id, None)
        self._jobs.extend((partition, why) for partition in partitions)

    def begin(self) -> None:
        """Do a few, unless others are waiting for their turn already."""
        if self._more.is_set():
            return
        self._do_some()
        if self._jobs:
            self._more.set()
            self._idle.clear()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._more.wait()
            while self._jobs:
                await asyncio.sleep(0)
                self._do_some()
            self._more.clear()
            self._idle.set()

    async def empty(self) -> None:
        """Returns when nothing waits any more."""
        await self._idle.wait()

    def _do_some(self) -> None:
        for _ in range(min(AT_ONCE, len(self._jobs))):
            first, second = self._jobs.popleft()
            if isinstance(first, Partition):
                assert isinstance(second, KafkaError)
                self._let_go(first, second)
                continue
            assert isinstance(second, int)
            waiting = self._waiting.get(first)
            if waiting is not None:
                waiting.discard(second)
                if not waiting:
                    del self._waiting[first]
            self._look_at(first, second)
