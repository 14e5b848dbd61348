"""Returns leadership to the preferred replicas, some time after a broker has come back.

A restart takes away everything that a broker led. Without this, the brokers that were restarted last would lead
nothing. The controller checks periodically. A partition is returned only if its preferred replica was ready at the
previous check too, in the same start of its broker. So a broker that keeps crashing gets nothing, and leadership does
not move back and forth.

`due` is pure; LeaderBalance runs while its broker is the controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from headrace.cluster import election
from headrace.cluster.partition_requests import preferred_election
from headrace.cluster.tending import Desk
from headrace.model.image import NO_LEADER, ClusterImage
from headrace.model.topic_partition import TopicPartition
from headrace.wire.errors import KafkaError
from headrace.world.clock import Clock

logger = logging.getLogger(__name__)

# Partitions whose preferred replica could lead but does not -> the epoch of its broker.
Ready = Mapping[TopicPartition, int]


class BalanceTerms(Struct, frozen=True):
    enabled: bool = True
    interval_s: float = 30.0
    tolerated_percent: int = 10  # of the partitions that a broker should lead


def ready(image: ClusterImage) -> Ready:
    """Partitions that are led by another broker than the plan says, and could be led by that one."""
    found: dict[TopicPartition, int] = {}
    for topic in image.topics.values():
        for partition in topic.partitions:
            first = partition.replicas[0]
            if partition.leader not in (NO_LEADER, first) and election.preferred(partition, image.brokers) is not None:
                found[TopicPartition(topic.name, partition.index)] = image.brokers[first].epoch
    return found


def due(image: ClusterImage, before: Ready, now: Ready, tolerated_percent: int) -> list[TopicPartition]:
    """Those to be given back: ready then and now, to brokers that lack more than is tolerated."""
    wanted: Counter[int] = Counter()
    lacking: Counter[int] = Counter()
    for topic in image.topics.values():
        for partition in topic.partitions:
            wanted[partition.replicas[0]] += 1
            lacking[partition.replicas[0]] += (topic.name, partition.index) in now
    return [
        place
        for place, epoch in now.items()
        if before.get(place) == epoch
        and lacking[first := image.topics[place.topic].partitions[place.partition].replicas[0]] * 100
        > tolerated_percent * wanted[first]
    ]


class LeaderBalance:
    def __init__(self, desk: Desk, clock: Clock, terms: BalanceTerms) -> None:
        self._desk = desk
        self._clock = clock
        self._terms = terms

    async def run(self) -> None:
        before: Ready = {}
        while True:
            await self._clock.sleep(self._terms.interval_s)
            if not self._terms.enabled or len(self._desk.planned.brokers) < 2:
                continue
            image = self._desk.planned
            now = ready(image)
            places = due(image, before, now, self._terms.tolerated_percent)
            before = now
            if places:
                logger.info("giving %d partitions back to the brokers that should lead them", len(places))
                await asyncio.gather(*(self._give_back(*place) for place in places))

    async def _give_back(self, topic: str, index: int) -> None:
        try:
            await self._desk.submit(lambda image, epoch: preferred_election(image, topic, index, epoch))
        except KafkaError as error:
            logger.info("%s-%d stays where it is: %s", topic, index, error)
