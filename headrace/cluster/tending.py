"""The controller's background work: moves every partition to the state that follows from the live brokers.

A broker that dies or is restarted leaves every ISR and loses its leaderships. A broker that joins may be the only one
that can lead a partition. Settings change who can be elected. A reassignment is complete when its replicas are in sync.
All of this is one pure step per partition (`next_state`), executed whenever the image changes, for the affected
partitions.

Runs while its broker is the controller, and writes through the controller's queue. Invariant: a partition that could
not be settled is checked again, after a moment or when the image changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

from headrace.cluster import election, reassignment
from headrace.cluster.change import Change, Plan, State, change_partitions, in_groups
from headrace.cluster.election import terms_of
from headrace.cluster.growth import careless, thin
from headrace.cluster.recovery import Recovery
from headrace.cluster.setting_changes import SettingChange, SettingOperation, alter_settings
from headrace.cluster.topic_changes import MIN_ISR, TopicDefaults
from headrace.model.image import INTERNAL_TOPICS, NO_LEADER, ClusterImage, PartitionImage
from headrace.model.settings_in_force import BrokerFile
from headrace.model.topic_partition import TopicPartition
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.clock import Clock

_AGAIN_S = 1.0  # before a failed or unanswered step is retried

T = TypeVar("T")


class Desk(Protocol):
    """What tending needs from the controller."""

    @property
    def planned(self) -> ClusterImage:
        """The newest image, including changes that are being written."""
        ...

    def submit(self, plan: Plan[T]) -> asyncio.Future[T]: ...


def next_state(partition: PartitionImage, image: ClusterImage, terms: election.Terms) -> PartitionImage:
    """The next state; the same object if there is nothing to do."""
    return election.settled(reassignment.advanced(partition), image.brokers, terms)


def needed(image: ClusterImage, topics: Iterable[str], file: BrokerFile) -> Iterator[State]:
    """The next states of all partitions of these topics that are not in their proper state.

    Partitions that get a new leader come first, because the others have a leader in the meantime."""
    led: list[State] = []
    for name in topics:
        topic = image.topics.get(name)
        if topic is not None:
            terms = terms_of(topic, image, file)
            for partition in topic.partitions:
                after = next_state(partition, image, terms)
                if after.leader_epoch != partition.leader_epoch:
                    yield name, after
                elif after is not partition:
                    led.append((name, after))
    yield from led


class Tending:
    def __init__(self, desk: Desk, recovery: Recovery, clock: Clock, defaults: TopicDefaults) -> None:
        self._desk = desk
        self._recovery = recovery
        self._clock = clock
        self._defaults = defaults
        self._file = defaults.file
        self._dirty: dict[str, None] = {}  # topics to check, in the order in which they changed
        self._stirred = asyncio.Event()

    def look(self, old: ClusterImage, new: ClusterImage) -> None:
        """Remember the topics that this change of the image may affect."""
        if old.brokers != new.brokers or old.broker_settings != new.broker_settings:
            changed = list(new.topics)
        else:
            changed = [name for name, topic in new.topics.items() if old.topics.get(name) is not topic]
        self._stir(changed)

    def _stir(self, topics: Iterable[str]) -> None:
        self._dirty |= dict.fromkeys(topics)
        if self._dirty:
            self._stirred.set()

    async def run(self) -> None:
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            topics, self._dirty = list(self._dirty), {}
            await self._settle(topics)
            await self._recover(topics)
            if not INTERNAL_TOPICS.isdisjoint(topics):
                await self._grow()

    # --- settling ---------------------------------------------------------------------------------------------------

    async def _settle(self, topics: Sequence[str]) -> None:
        writes: list[asyncio.Future[None]] = []
        for group in in_groups(needed(self._desk.planned, topics, self._file)):
            writes.append(asyncio.ensure_future(self.write(group)))
            await asyncio.sleep(0)  # let other tasks run while many thousands of partitions are checked
        await asyncio.gather(*writes)

    async def write(self, states: Sequence[State]) -> None:
        """Writes all at once; if another writer changed one of them, retries in halves, down to the changed one."""

        def plan(image: ClusterImage, epoch: int) -> Change[None]:
            return change_partitions(image, [state for state in states if _is_next(image, *state)], epoch)

        try:
            await self._desk.submit(plan)
        except KafkaError as error:
            if error.code is ErrorCode.not_controller:
                return
            middle = len(states) // 2
            if middle:
                await self.write(states[:middle])
                await self.write(states[middle:])
            else:
                self._clock.call_later(_AGAIN_S, self._stir, [states[0][0]])

    async def _grow(self) -> None:
        image = self._desk.planned
        for group in in_groups(thin(image, self._defaults)):
            await self.write(group)
        two = SettingChange(SettingOperation.SET, MIN_ISR, "2")
        for name in list(careless(self._desk.planned, self._defaults)):
            with suppress(KafkaError):  # not the controller any more, or the topic was just deleted
                await self._desk.submit(partial(self._altered, name=name, change=two))

    def _altered(self, image: ClusterImage, _: int, *, name: str, change: SettingChange) -> Change[Mapping[str, str]]:
        return alter_settings(image, "topic", name, [change], self._file, replace_all=False)

    # --- the longest log --------------------------------------------------------------------------------------------

    async def _recover(self, topics: Sequence[str]) -> None:
        image = self._desk.planned
        places = [
            TopicPartition(name, partition.index)
            for name in topics
            if (topic := image.topics.get(name)) is not None
            for partition in topic.partitions
            if partition.leader == NO_LEADER
            and election.can_recover(partition, image.brokers, unclean=terms_of(topic, image, self._file).unclean)
        ]
        if not places:
            return
        ends = await self._recovery.ends(image, places)
        open_questions = [place[0] for place in places if not await self._elect(place, ends[place])]
        if open_questions:
            self._clock.call_later(_AGAIN_S, self._stir, open_questions)

    async def _elect(self, place: TopicPartition, ends: Mapping[int, election.LogEnd]) -> bool:
        """Whether this partition is finished and need not be asked again."""

        def plan(image: ClusterImage, epoch: int) -> Change[PartitionImage]:
            topic = image.topics.get(place[0])
            unclean = topic is not None and terms_of(topic, image, self._file).unclean
            return self._recovery.plan(image, place, ends, epoch, unclean=unclean)

        try:
            elected = await self._desk.submit(plan)
        except KafkaError as error:
            return error.code is not ErrorCode.eligible_leaders_not_available
        self._recovery.tell(place[0], elected, ends)
        return True


def _is_next(image: ClusterImage, topic: str, state: PartitionImage) -> bool:
    """Whether the partition is unchanged since this state was planned."""
    now = image.partition(topic, state.index)
    return now is not None and now.version == state.version
