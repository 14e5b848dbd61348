"""A broker that follows the store sees what is stored, whatever the connection does, and never goes back."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import cast

import pytest
from msgspec.structs import replace

from headrace.cluster import znodes
from headrace.cluster.change import create_partition, set_partition
from headrace.cluster.following import Following
from headrace.cluster.membership import BrokerIdentity, found_cluster, register_broker
from headrace.cluster.store import Create, Delete, NoNode, SessionState, Set, Stat, Store, Watch
from headrace.cluster.view import ClusterView
from headrace.model.image import ClusterImage, PartitionImage, TopicImage
from headrace.world.entropy import SeededEntropy
from sim.loop import SimClock, run
from sim.zookeeper import SimZooKeeper

ORDERS = uuid.UUID(int=7)


async def cluster(ensemble: SimZooKeeper) -> Store:
    """Another broker's session, on a tree that is founded."""
    store = await ensemble.connect("writer")
    await found_cluster(store, SeededEntropy(1))
    return store


@asynccontextmanager
async def following(ensemble: SimZooKeeper, view: ClusterView) -> AsyncIterator[None]:
    follower = Following(await ensemble.connect("reader"), view)
    await follower.begin()
    running = asyncio.create_task(follower.run())
    try:
        yield
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def seen(view: ClusterView, wanted: Callable[[ClusterImage], bool]) -> None:
    """Waits until the view shows it; the simulation says so if nothing will ever change any more."""
    clock = SimClock()
    for _ in range(1000):
        if wanted(view.image):
            return
        await clock.sleep(0.01)
    raise AssertionError(f"the view never showed it: {view.image}")


def topic(partitions: int, topic_id: uuid.UUID = ORDERS) -> TopicImage:
    states = tuple(PartitionImage(index, (1, 2), (1, 2), 1, 0, 0, (0, 0)) for index in range(partitions))
    return TopicImage("orders", topic_id, states, {"retention.ms": "5"})


async def make(store: Store, made: TopicImage) -> None:
    stored = znodes.encode_topic(znodes.StoredTopic(made.id, len(made.partitions), made.settings))
    states = [create_partition(made.id, partition, 1) for partition in made.partitions]
    await store.multi([Create(znodes.partitions_path(made.id)), *states, Create(znodes.topic_path(made.name), stored)])


async def remove(store: Store, made: TopicImage) -> None:
    states = [Delete(znodes.partition_path(made.id, partition.index)) for partition in made.partitions]
    await store.multi([Delete(znodes.topic_path(made.name)), *states, Delete(znodes.partitions_path(made.id))])


def test_everything_that_is_stored_is_seen_at_the_start() -> None:
    async def story() -> None:
        ensemble, view = SimZooKeeper(3), ClusterView()
        store = await cluster(ensemble)
        await register_broker(store, BrokerIdentity(4, "here", 9092, "r"), SimClock())
        await store.create(znodes.CONTROLLER, znodes.encode_controller(4), ephemeral=True)
        await store.create(znodes.broker_settings_path(""), znodes.encode_settings({"a": "b"}))
        await store.set(znodes.GROUP_SETTINGS, znodes.encode_group_settings({"g": {"a": "b"}}))
        await make(store, topic(3))
        async with following(ensemble, view):
            image = view.image
            assert image.group_settings == {"g": {"a": "b"}}
            assert image.cluster_id
            assert image.controller_id == 4
            assert image.brokers[4].rack == "r"
            assert image.broker_settings == {"": {"a": "b"}}
            assert image.topics == {"orders": topic(3)}
            assert image.topics_by_id == {ORDERS: topic(3)}
            await store.set(znodes.GROUP_SETTINGS, znodes.encode_group_settings({}))
            await seen(view, lambda image: image.group_settings == {})

    run(story(), seed=3)


@pytest.mark.parametrize("seed", range(8))
def test_what_changes_is_seen_also_over_broken_connections(seed: int) -> None:
    async def story() -> None:
        ensemble, view = SimZooKeeper(seed), ClusterView()
        store = await cluster(ensemble)
        await make(store, topic(2))
        async with following(ensemble, view):
            for round in range(6):
                before = view.image.topics["orders"].partitions[1]
                after = replace(before, leader=2, leader_epoch=before.leader_epoch + 1, version=before.version + 1)
                if round % 2:
                    ensemble.break_connection("reader")
                await store.multi([set_partition(ORDERS, after, 1)])
                await seen(view, lambda image, after=after: image.topics["orders"].partitions[1] == after)  # type: ignore[misc]
            grown = replace(topic(4), settings={"retention.ms": "6"}, version=1)
            states = [create_partition(ORDERS, partition, 1) for partition in grown.partitions[2:]]
            stored = znodes.encode_topic(znodes.StoredTopic(ORDERS, 4, grown.settings))
            await store.multi([*states, Set(znodes.topic_path("orders"), stored, 0)])
            await seen(view, lambda image: len(image.topics["orders"].partitions) == 4)
            assert view.image.topics["orders"].settings == {"retention.ms": "6"}

    run(story(), seed=seed)


def test_of_many_changes_at_once_the_first_count_before_the_last_are_read() -> None:
    async def story() -> None:
        ensemble, view = SimZooKeeper(5), ClusterView()
        store = await cluster(ensemble)
        many = topic(1200)
        await make(store, many)
        newer: list[set[int]] = []
        async with following(ensemble, view):
            view.subscribe(
                lambda old, new: newer.append({p.index for p in new.topics["orders"].partitions if p.leader_epoch})
            )
            elected = [replace(p, leader=2, leader_epoch=1, version=1) for p in reversed(many.partitions)]
            await store.multi([set_partition(ORDERS, state, 1) for state in elected])
            await seen(view, lambda image: all(p.leader_epoch for p in image.topics["orders"].partitions))
        rounds = [indexes for indexes in newer if indexes]
        assert rounds[0] < set(range(1200)), "nothing counted before everything was read"
        assert min(rounds[0]) == 1200 - len(rounds[0]), "they were not read in the order in which they changed"

    run(story(), seed=5)


@pytest.mark.parametrize("seed", range(8))
def test_a_topic_made_again_under_its_name_is_another_topic(seed: int) -> None:
    async def story() -> None:
        ensemble, view = SimZooKeeper(seed), ClusterView()
        store = await cluster(ensemble)
        await make(store, topic(2))
        async with following(ensemble, view):
            again = topic(1, uuid.UUID(int=8))
            await remove(store, topic(2))
            await make(store, again)
            await seen(view, lambda image: image.topics.get("orders") == again)
            assert list(view.image.topics_by_id) == [again.id]
            await remove(store, again)
            await seen(view, lambda image: not image.topics)

    run(story(), seed=seed)


@pytest.mark.parametrize("seed", range(8))
def test_a_broker_that_was_started_again_has_another_epoch_and_a_dead_one_is_gone(seed: int) -> None:
    async def story() -> None:
        ensemble, view = SimZooKeeper(seed), ClusterView()
        await cluster(ensemble)
        async with following(ensemble, view):
            for start in range(3):
                broker = await ensemble.connect("broker")
                epoch = await register_broker(broker, BrokerIdentity(5, "there", 9092, None), SimClock())
                assert epoch == start
                await seen(view, lambda image, epoch=epoch: 5 in image.brokers and image.brokers[5].epoch == epoch)  # type: ignore[misc]
                await broker.close()
            await seen(view, lambda image: 5 not in image.brokers)

    run(story(), seed=seed)


class ReturnsMeanwhile:
    """A session in which, once `armed`, a broker is read as gone, comes back, and only then the list is read."""

    def __init__(self, store: Store, comes_back: Callable[[], Awaitable[object]]) -> None:
        self.armed = False
        self._store = store
        self._comes_back = comes_back
        self._read_as_gone = asyncio.Event()

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        self._store.on_session(listener)

    async def sync(self) -> None:
        await self._store.sync()

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return await self._store.exists(path, watch)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        try:
            return await self._store.get(path, watch)
        except NoNode:
            if path == znodes.broker_path(5):
                self._read_as_gone.set()
            raise

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        if self.armed and path == znodes.BROKERS:
            self.armed = False
            await self._read_as_gone.wait()
            await self._comes_back()
            await self._store.sync()
        return await self._store.children(path, watch)


def test_a_broker_that_comes_back_while_it_is_looked_for_is_there() -> None:
    """After a broken connection everything is read at once: the broker by its own node, and by the list of all."""

    async def story() -> None:
        ensemble, view = SimZooKeeper(3), ClusterView()
        await cluster(ensemble)
        place = BrokerIdentity(5, "there", 9092, None)
        first = await ensemble.connect("broker")
        await register_broker(first, place, SimClock())

        async def comes_back() -> None:
            await register_broker(await ensemble.connect("broker"), place, SimClock())

        store = ReturnsMeanwhile(await ensemble.connect("reader"), comes_back)
        follower = Following(cast("Store", store), view)
        await follower.begin()
        running = asyncio.create_task(follower.run())
        assert view.image.brokers[5].epoch == 0
        store.armed = True
        ensemble.cut("reader")
        ensemble.break_connection("reader")
        await first.close()
        ensemble.mend("reader")
        await seen(view, lambda image: 5 in image.brokers and image.brokers[5].epoch == 1)
        running.cancel()

    run(story(), seed=3)


def test_what_a_list_does_not_name_yet_is_not_taken_from_the_view() -> None:
    """The controller tells of a topic that it made before the follower's server has heard of it."""

    async def story() -> None:
        ensemble, view = SimZooKeeper(5), ClusterView()
        store = await cluster(ensemble)
        shown: list[bool] = []
        async with following(ensemble, view):
            view.subscribe(lambda old, new: shown.append("orders" in new.topics))
            await make(store, topic(2))
            view.merge(view.image.with_topics([topic(2)]))
            await register_broker(store, BrokerIdentity(5, "there", 9092, None), SimClock())
            await seen(view, lambda image: 5 in image.brokers)
            await SimClock().sleep(1)
        assert all(shown)

    run(story(), seed=5)


def test_of_two_states_the_view_keeps_the_newer_one() -> None:
    view = ClusterView()
    view.publish(ClusterImage("c", 1).with_topics([topic(2)]).with_broker_settings("", {"a": "1"}, 3))
    old = view.image
    newer = replace(topic(1).partitions[0], leader=2, leader_epoch=1, version=4)
    view.merge(old.with_partitions({ORDERS: [newer]}))
    grown = replace(topic(3), version=1, settings={})
    view.merge(view.image.with_topics([grown]))
    view.merge(old.with_broker_settings("", {"a": "0"}, 2))
    after = view.image.topics["orders"]
    assert after.partitions[0] == newer
    assert (len(after.partitions), after.version, after.settings) == (3, 1, {})
    assert view.image.broker_settings == {"": {"a": "1"}}
