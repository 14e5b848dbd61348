"""A disk may lose writes only while the running process of every broker is in sync, as ZooKeeper knows it."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Collection

import pytest

from headrace.cluster import znodes
from headrace.cluster.membership import BrokerIdentity, found_cluster, register_broker
from headrace.cluster.store import Store
from headrace.cluster.znodes import PartitionState, StoredTopic
from headrace.world.entropy import SeededEntropy
from sim.loop import SimClock, run
from sim.zookeeper import SimZooKeeper
from tests.chaos.permission import missing

ORDERS = StoredTopic(uuid.UUID(int=1), 2, {})
BROKERS = (1, 2, 3)


class Cluster:
    """Three brokers, each with a session of its own, and a topic that is in sync under their first epochs."""

    def __init__(self) -> None:
        self.ensemble = SimZooKeeper()
        self.store: Store

    async def begin(self) -> None:
        self.store = await self.ensemble.connect("looker")
        await found_cluster(self.store, SeededEntropy(1))
        for broker in BROKERS:
            assert await self.start(broker) == 0
        await self.store.create(f"{znodes.PARTITIONS}/{ORDERS.id.hex}")
        for index in range(ORDERS.partitions):
            await self.set(index, ((1, 0), (2, 0), (3, 0)))
        await self.store.create(znodes.topic_path("orders"), znodes.encode_topic(ORDERS))

    async def start(self, broker: int) -> int:
        place = BrokerIdentity(broker, f"b{broker}", 9092, None)
        return await register_broker(await self.ensemble.connect(f"broker-{broker}"), place, SimClock())

    async def set(self, index: int, isr: tuple[tuple[int, int], ...]) -> None:
        path = znodes.partition_path(ORDERS.id, index)
        data = znodes.encode_partition(PartitionState(BROKERS, 1, 0, isr, 0))
        if await self.store.exists(path) is None:
            await self.store.create(path, data)
        else:
            await self.store.set(path, data)

    async def missing(self, running: Collection[int] = BROKERS) -> str | None:
        await self.store.sync()
        return await missing(self.store, running, len(BROKERS))


def told(story: Callable[[Cluster], Awaitable[None]]) -> None:
    async def whole() -> None:
        cluster = Cluster()
        await cluster.begin()
        assert await cluster.missing() is None
        await story(cluster)

    run(whole(), seed=1)


def test_the_entry_of_an_earlier_start_does_not_count() -> None:
    """The old session has ended and the new process has registered; the ISR still names the old one."""

    async def story(cluster: Cluster) -> None:
        cluster.ensemble.expire("broker-2")
        assert await cluster.start(2) == 1
        found = await cluster.missing()
        assert found == "orders-0: in sync ((1, 0), (2, 0), (3, 0)), registered [(1, 0), (2, 1), (3, 0)]"
        await cluster.set(0, ((1, 0), (2, 1), (3, 0)))
        assert "orders-1" in (await cluster.missing() or "")
        await cluster.set(1, ((3, 0), (2, 1), (1, 0)))
        assert await cluster.missing() is None

    told(story)


def test_a_process_that_has_not_registered_is_not_in_sync_although_its_predecessor_seems_to_be() -> None:
    """Until the session of the old process ends, every ISR and every registration still names it."""

    async def story(cluster: Cluster) -> None:
        assert "only the brokers [1, 3]" in (await cluster.missing(running=(1, 3)) or "")

    told(story)


@pytest.mark.parametrize("isr", [((1, 0), (3, 0)), ((1, 0),)])
def test_every_replica_must_be_in_the_isr(isr: tuple[tuple[int, int], ...]) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.set(1, isr)
        assert "orders-1" in (await cluster.missing() or "")

    told(story)


def test_a_broker_whose_session_is_over_is_not_in_sync() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.ensemble.expire("broker-3")
        assert "/brokers/ids/3" in (await cluster.missing() or "")

    told(story)
