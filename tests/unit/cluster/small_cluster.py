"""A few brokers of a cluster without their data: sessions with a simulated ZooKeeper, views, candidates for controller.

Virtual time from one seed. `Cluster.start` and its relatives stand for the lives of brokers; `Cluster.settled` waits
until every view shows what is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.cluster.controller import Controller
from headrace.cluster.election import LogEnd
from headrace.cluster.following import Following
from headrace.cluster.isr_writes import IsrWrites
from headrace.cluster.membership import BrokerIdentity, found_cluster, register_broker
from headrace.cluster.store import SessionLost, Store
from headrace.cluster.topic_changes import NewTopic, TopicDefaults
from headrace.cluster.view import ClusterView
from headrace.model.image import BrokerImage, ClusterImage, PartitionImage
from headrace.model.settings_in_force import BrokerFile
from headrace.model.topic_partition import TopicPartition
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.world.entropy import SeededEntropy
from sim.loop import SimClock, run
from sim.zookeeper import SimZooKeeper

PATIENCE_S = 60


@dataclass
class Member:
    id: int
    store: Store
    view: ClusterView
    controller: Controller
    isr: IsrWrites
    epoch: int
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


class Cluster:
    """Also answers for the length of logs (`ends`), as brokers would."""

    def __init__(self, seed: int, settings: Mapping[str, str]) -> None:
        self.seed = seed
        self.ensemble = SimZooKeeper(seed)
        self.clock = SimClock()
        self.settings = settings
        self.members: dict[int, Member] = {}
        self.ends: dict[int, dict[TopicPartition, LogEnd]] = {}
        self.failures: list[BaseException] = []

    async def start(self, number: int, *, kept_epoch: int | None = None, rack: str | None = None) -> Member:
        store = await self.ensemble.connect(f"broker-{number}")
        entropy = SeededEntropy(self.seed * 100 + number)
        await found_cluster(store, entropy)
        view = ClusterView()
        following = Following(store, view)
        await following.begin()
        epoch = await register_broker(
            store,
            BrokerIdentity(number, "127.0.0.1", 9000 + number, rack),
            self.clock,
            kept_epoch=kept_epoch,
            patience_s=30,
        )
        file = BrokerFile(number, self.settings)
        defaults = TopicDefaults(1, None, file)
        controller = Controller(store, view, number, defaults, entropy, self.clock, log_ends=self)
        member = Member(number, store, view, controller, IsrWrites(store, view, file), epoch)
        member.tasks = [asyncio.create_task(following.run()), asyncio.create_task(controller.run())]
        for task in member.tasks:
            task.add_done_callback(self._ended)
        self.members[number] = member
        return member

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, SessionLost):
            self.failures.append(error)

    async def kill(self, number: int) -> None:
        """Its process is gone; the ensemble hears nothing of it any more and ends its session in time."""
        self.ensemble.expire(f"broker-{number}")
        await self._end(number)

    async def stop(self, number: int) -> int:
        """A clean stop; the epoch that its folder keeps."""
        await self.members[number].store.close()
        return (await self._end(number)).epoch

    async def revive(self) -> None:
        """Brokers whose session was lost while they lived register anew, with all that they had."""
        for number, member in list(self.members.items()):
            if any(task.done() for task in member.tasks):
                await self._end(number)
                await self.start(number, kept_epoch=member.epoch)

    async def _end(self, number: int) -> Member:
        member = self.members.pop(number)
        for task in member.tasks:
            task.remove_done_callback(self._ended)
            task.cancel()
        await asyncio.gather(*member.tasks, return_exceptions=True)
        return member

    async def ask(self, broker: BrokerImage, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, LogEnd]:
        answers = self.ends.get(broker.id, {})
        return {place: answers[place] for place in partitions if place in answers}

    # --- looking ----------------------------------------------------------------------------------------------------

    async def settled(self, shows: Callable[[ClusterImage], bool], *, at: int | None = None) -> ClusterImage:
        """When the view of every living broker, or of this one, shows that; its image."""
        deadline_s = self.clock.monotonic() + PATIENCE_S
        while True:
            await self.revive()
            watched = [self.members[at]] if at is not None else list(self.members.values())
            images = [member.view.image for member in watched]
            if all(map(shows, images)):
                return images[0]
            assert not self.failures, self.failures
            assert self.clock.monotonic() < deadline_s, f"it never came to that: {images}"
            await asyncio.sleep(0.01)

    async def partition(
        self, topic: str, index: int, shows: Callable[[PartitionImage], bool], *, at: int | None = None
    ) -> PartitionImage:
        def found(image: ClusterImage) -> bool:
            partition = image.partition(topic, index)
            return partition is not None and shows(partition)

        return (await self.settled(found, at=at)).topics[topic].partitions[index]

    async def controller(self) -> Controller:
        def in_office(image: ClusterImage) -> bool:
            member = self.members.get(image.controller_id)
            return member is not None and member.controller.in_office

        image = await self.settled(in_office)
        return self.members[image.controller_id].controller

    async def create(self, new: NewTopic) -> None:
        """Asked of whoever is the controller, again if that one is not any more."""
        while True:
            try:
                await (await self.controller()).create_topic(new)
            except KafkaError as error:
                if error.code is not ErrorCode.not_controller:
                    raise
                await asyncio.sleep(0.1)
                continue
            await self.settled(lambda image: new.name in image.topics)
            return


Story = Callable[[Cluster], Awaitable[None]]


def tell(story: Story, *, brokers: int = 3, seed: int = 1, settings: Mapping[str, str] | None = None) -> None:
    async def whole() -> None:
        cluster = Cluster(seed, settings or {"min.insync.replicas": "2"})
        for number in range(1, brokers + 1):
            await cluster.start(number)
        await cluster.settled(lambda image: len(image.brokers) == brokers)
        await story(cluster)
        assert not cluster.failures, cluster.failures
        for number in list(cluster.members):
            await cluster.stop(number)

    run(whole(), seed, limit_s=3600)
