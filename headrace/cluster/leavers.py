"""Remembers which replicas left an ISR, until the remaining members have proved that they are alive.

A registered broker was alive up to a session timeout ago. If the remaining members are already dead and have lost data,
the replica that left last may be the only one with all acknowledged records. Example: all brokers of a partition fail,
the others by a power cut, and one that was only killed is back before the sessions of the others end. So an election
keeps this replica in `last_known`, and the longest log is chosen only once it has answered too. The controller removes
it here once the remaining members have been registered, with the same broker epoch as in the ISR, for longer than the
session of a dead broker can last.

Only uninterrupted contact with ZooKeeper counts (contact.py). Runs while its broker is the controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

from headrace.cluster import election
from headrace.cluster.change import State, in_groups
from headrace.cluster.contact import Contact
from headrace.cluster.store import Store
from headrace.model.image import NO_LEADER, ClusterImage, PartitionImage
from headrace.model.topic_partition import TopicPartition
from headrace.world.clock import Clock

_SESSIONS = 2  # ZooKeeper ends a session late, but by less than another timeout
_LOOKS = 4  # in that time
_YIELD_AFTER = 500  # topics

Parting = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]  # who stayed, with which epochs, and who left


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
        self._contact = Contact(store, clock)
        self._seen: dict[TopicPartition, tuple[Parting, float]] = {}  # since when

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
            if min(now_s - since_s, self._contact.lasted_s()) >= self._wait_s:
                after = election.without_leavers(partition, image.brokers)
                if after is not None:
                    yield place.topic, after


def _parting(partition: PartitionImage) -> Parting:
    return partition.isr, partition.isr_epochs, partition.last_known
