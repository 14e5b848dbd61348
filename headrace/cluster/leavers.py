"""Who left an ISR is remembered until those who stayed have shown that they live.

That a broker is registered says that it lived a session's time ago. If those who stayed are dead already, and have lost
what they had, then the one who left last may be the only one with all that was acknowledged: a broker that was killed
and is back before the sessions of the others end, after all of them lost power. So an election keeps it among the
`last_known`, without whom no longest log is chosen, and the controller forgets it here: once those who stayed have been
registered, with the very start that is in the ISR, for longer than the session of a dead broker lasts.

Sessions end only while ZooKeeper is there, and get all of their time again when it comes back. So time counts only
since this broker was last cut off from it. Runs while its controller is in office.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

from headrace.cluster import election
from headrace.cluster.change import State, in_groups
from headrace.cluster.store import SessionState, Store
from headrace.model.image import NO_LEADER, ClusterImage, PartitionImage
from headrace.model.topic_partition import TopicPartition
from headrace.world.clock import Clock

_SESSIONS = 2  # ZooKeeper ends a session later than it should by less than another one
_LOOKS = 4  # in that time
_YIELD_AFTER = 500  # topics

Parting = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]  # who stayed, in which start, and who left


class Leavers:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        session_timeout_s: float,
        image: Callable[[], ClusterImage],
        write: Callable[[Sequence[State]], Awaitable[None]],
    ) -> None:
        self._clock = clock
        self._wait_s = _SESSIONS * session_timeout_s
        self._image = image
        self._write = write
        self._in_touch_since_s = clock.monotonic()
        self._seen: dict[TopicPartition, tuple[Parting, float]] = {}  # since when
        store.on_session(self._on_session)

    def _on_session(self, state: SessionState) -> None:
        self._in_touch_since_s = self._clock.monotonic()  # of any news: nobody was in touch between two of them

    async def run(self) -> None:
        self._seen.clear()
        while True:
            await self._clock.sleep(self._wait_s / _LOOKS)
            await self._look()
            for group in in_groups(self._forgotten()):
                await self._write(group)

    async def _look(self) -> None:
        now_s, seen = self._clock.monotonic(), dict[TopicPartition, tuple[Parting, float]]()
        for number, (name, topic) in enumerate(self._image().topics.items()):
            for partition in topic.partitions:
                if partition.last_known and partition.leader != NO_LEADER:
                    place, parting = TopicPartition(name, partition.index), _parting(partition)
                    before = self._seen.get(place)
                    seen[place] = before if before is not None and before[0] == parting else (parting, now_s)
            if number % _YIELD_AFTER == 0:
                await asyncio.sleep(0)
        self._seen = seen

    def _forgotten(self) -> Iterator[State]:
        """Partitions whose leavers need not be remembered any more, without them."""
        image, now_s = self._image(), self._clock.monotonic()
        for place, (parting, since_s) in self._seen.items():
            partition = image.partition(*place)
            if partition is None or _parting(partition) != parting:
                continue
            if now_s - max(since_s, self._in_touch_since_s) >= self._wait_s:
                after = election.without_leavers(partition, image.brokers)
                if after is not None:
                    yield place.topic, after


def _parting(partition: PartitionImage) -> Parting:
    return partition.isr, partition.isr_epochs, partition.last_known
