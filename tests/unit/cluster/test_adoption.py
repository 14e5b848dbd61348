"""A single broker's metadata becomes a cluster's, whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace.cluster import znodes
from headrace.cluster.adoption import ADOPTING, copy_cluster
from headrace.cluster.following import Following
from headrace.cluster.membership import BrokerIdentity, found_cluster, register_broker
from headrace.cluster.store import ConnectionLost, Operation, Stat, Store
from headrace.cluster.view import ClusterView
from headrace.model.failure import Failure
from headrace.model.image import ClusterImage
from headrace.world.entropy import SeededEntropy
from sim.loop import SimClock, run
from sim.zookeeper import SimZooKeeper
from tests.unit.cluster.test_following import make, topic


async def single_broker() -> Store:
    """The store of a broker that was started three times and has a topic."""
    ensemble = SimZooKeeper(1)
    store = await ensemble.connect("broker")
    await found_cluster(store, SeededEntropy(1))
    await make(store, topic(3))
    for _ in range(3):
        await store.close()
        store = await ensemble.connect("broker")
        await register_broker(store, BrokerIdentity(1, "here", 9092, None), SimClock())
        await store.set(znodes.CONTROLLER_EPOCH, znodes.encode_controller(1))
    return store


async def shown(store: Store) -> ClusterImage:
    view = ClusterView()
    await Following(store, view).begin()
    return view.image


def test_a_copy_shows_the_same_cluster_with_its_epochs_and_without_who_was_alive() -> None:
    async def story() -> None:
        source, target = await single_broker(), await SimZooKeeper(2).connect("adopter")
        assert await copy_cluster(source, target, "zk/folder") > 10
        before, after = await shown(source), await shown(target)
        assert after.cluster_id == before.cluster_id
        assert after.topics == before.topics
        assert after.brokers == {}
        for path in (znodes.broker_epoch_path(1), znodes.CONTROLLER_EPOCH):
            assert (await target.get(path))[1].version == (await source.get(path))[1].version
        assert await register_broker(target, BrokerIdentity(1, "here", 9092, None), SimClock(), kept_epoch=2) == 3
        assert await target.exists(ADOPTING) is None
        assert await copy_cluster(source, target, "zk/folder") == 0, "done already"

    run(story(), seed=1)


class Breaking:
    """A store whose n-th write does not come through."""

    def __init__(self, store: Store, writes: int) -> None:
        self._store = store
        self._left = writes

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        self._left -= 1
        if self._left < 0:
            raise ConnectionLost("/")
        return await self._store.multi(operations)


def test_a_copy_that_broke_off_is_no_cluster_and_is_begun_anew() -> None:
    async def story() -> None:
        source, target = await single_broker(), await SimZooKeeper(2).connect("adopter")
        for writes in range(3):
            try:
                await copy_cluster(source, Breaking(target, writes), "zk")  # type: ignore[arg-type]
            except ConnectionLost:
                assert await target.exists(znodes.PRODUCER_IDS) is None
                assert await target.exists(ADOPTING) is not None
        await copy_cluster(source, target, "zk")
        assert (await shown(target)).topics == (await shown(source)).topics

    run(story(), seed=1)


def test_nothing_is_mixed_with_what_is_there() -> None:
    async def story() -> None:
        source = await single_broker()
        other = await SimZooKeeper(3).connect("adopter")
        await found_cluster(other, SeededEntropy(9))
        with pytest.raises(Failure, match="zk holds the cluster"):
            await copy_cluster(source, other, "zk")
        strange = await SimZooKeeper(4).connect("adopter")
        await strange.create("/solr")
        with pytest.raises(Failure, match="zk is not empty"):
            await copy_cluster(source, strange, "zk")
        assert await strange.children("/") == ["solr"]

    run(story(), seed=1)
