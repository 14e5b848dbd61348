"""A broker keeps its place in the cluster over lost sessions, and gives it up in good order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from headrace.cluster import znodes
from headrace.cluster.membership import BrokerIdentity, found_cluster, register_broker
from headrace.cluster.sessions import Sessions
from headrace.cluster.view import ClusterView
from headrace.model.failure import Failure
from headrace.model.image import ClusterImage
from headrace.server.standing import LEAVE_S, Standing
from headrace.world.entropy import SeededEntropy
from sim.loop import SimClock, run
from sim.zookeeper import SimZooKeeper
from tests.unit.cluster.test_following import ORDERS, make, seen, topic

PLACE = BrokerIdentity(1, "here", 9092, None)


@dataclass
class Life:
    ensemble: SimZooKeeper
    view: ClusterView
    standing: Standing
    running: asyncio.Task[None]
    lost: list[float] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)

    def shows(self, epoch: int) -> bool:
        return 1 in self.view.image.brokers and self.view.image.brokers[1].epoch == epoch


@asynccontextmanager
async def life(ensemble: SimZooKeeper) -> AsyncIterator[Life]:
    clock, view = SimClock(), ClusterView()
    sessions = Sessions(lambda: ensemble.connect("broker"))
    await sessions.begin()
    await found_cluster(sessions, SeededEntropy(1))

    async def campaign() -> None:
        await asyncio.Event().wait()

    standing = Standing(sessions, view, clock, SeededEntropy(2), 3.0, campaign)
    await standing.follow()
    lost: list[float] = []
    epochs: list[int] = []
    standing.on_lost(lambda: lost.append(clock.monotonic()))
    standing.on_registered(epochs.append)
    await standing.register(PLACE, None)
    running = asyncio.create_task(standing.run())
    try:
        yield Life(ensemble, view, standing, running, lost, epochs)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError, Failure):
            await running


@pytest.mark.parametrize("seed", range(5))
def test_a_broker_registers_anew_when_its_session_ended_and_says_that_it_lost_nothing(seed: int) -> None:
    async def story() -> None:
        async with life(SimZooKeeper(seed)) as broker:
            for epoch in range(3):
                await seen(broker.view, lambda image, epoch=epoch: broker.shows(epoch))  # type: ignore[misc]
                assert broker.view.image.brokers[1].unbroken_since == 0
                assert broker.epochs == list(range(epoch + 1))
                assert len(broker.lost) == epoch
                broker.ensemble.expire("broker")
            await seen(broker.view, lambda image: broker.shows(3))

    run(story(), seed=seed)


def test_a_short_loss_of_the_connection_changes_nothing() -> None:
    async def story() -> None:
        async with life(SimZooKeeper(2)) as broker:
            broker.ensemble.break_connection("broker")
            await SimClock().sleep(10)
            assert broker.shows(0)
            assert broker.lost == []

    run(story(), seed=2)


def test_a_broker_whose_id_was_taken_while_it_was_away_ends_with_one_line() -> None:
    async def story() -> None:
        ensemble = SimZooKeeper(3)
        async with life(ensemble) as broker:
            ensemble.cut("broker")
            other = await ensemble.connect("other")
            await register_broker(other, PLACE, SimClock(), patience_s=6.0)
            ensemble.mend("broker")
            with pytest.raises(Failure, match="id 1 is already running"):
                await broker.running

    run(story(), seed=3)


def test_a_broker_comes_back_when_zookeeper_is_away_while_its_old_session_stands() -> None:
    async def story() -> None:
        ensemble, clock = SimZooKeeper(5), SimClock()
        former = await ensemble.connect("former")
        await found_cluster(former, SeededEntropy(1))
        await register_broker(former, PLACE, clock)
        ensemble.cut("former")
        asyncio.get_running_loop().call_later(1, ensemble.stop, context=ensemble.context)
        asyncio.get_running_loop().call_later(60, ensemble.start, context=ensemble.context)
        async with life(ensemble) as broker:
            assert broker.standing.epoch == 1
            assert clock.monotonic() > 60

    run(story(), seed=5)


def test_leaving_waits_until_others_lead_but_not_for_ever() -> None:
    async def story() -> None:
        ensemble, clock = SimZooKeeper(4), SimClock()
        async with life(ensemble) as broker:
            other = await ensemble.connect("other")
            await register_broker(other, BrokerIdentity(2, "there", 9092, None), clock)
            await make(other, topic(1))
            await seen(broker.view, lambda image: "orders" in image.topics and 2 in image.brokers)
            leaving = asyncio.create_task(broker.standing.leave())
            await clock.sleep(1)
            assert not leaving.done()
            assert await other.children(znodes.BROKERS) == ["2"]
            await hand_over(broker.view.image, broker.view)
            await leaving
            assert clock.monotonic() < LEAVE_S
        async with life(ensemble) as broker:
            await seen(broker.view, lambda image: 2 in image.brokers)
            ensemble.stop()
            before = clock.monotonic()
            await broker.standing.leave()
            assert clock.monotonic() - before <= LEAVE_S + 1

    run(story(), seed=4)


async def hand_over(image: ClusterImage, view: ClusterView) -> None:
    """As the controller does."""
    state = image.topics["orders"].partitions[0]
    view.merge(image.with_partitions({ORDERS: [replace(state, leader=2, leader_epoch=1, version=1)]}))
