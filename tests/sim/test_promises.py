"""What acks promise in a cluster, and what a follower that cannot keep up costs: brokers on simulated machines."""

from __future__ import annotations

import asyncio
from statistics import mean

import pytest

from headrace.client.blocking import ConnectionLost
from headrace.cluster.znodes import PartitionState
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.record import Record
from headrace.wire.records import encode_batch
from sim.clients.caller import Caller, Nobody
from sim.clients.producer import produce_request, told
from sim.clients.reader import Shelf, sure_end
from sim.cluster import Machine, SimCluster
from sim.faults import in_sync
from sim.history.event import READ_UNCOMMITTED
from sim.loop import run

pytestmark = pytest.mark.usefixtures("swept")

TOPIC = "orders"
NOW = 1_767_225_600_000
ONE, ALL = 1, -1


async def send(caller: Caller, name: str, acks: int = ALL, size: int = 0) -> ErrorCode:
    """One attempt at the leader; what it answered."""
    batch = encode_batch([Record(0, NOW, None, f"{name}\n\n\n".encode() + bytes(size), ())])
    place, _ = await caller.leader(TOPIC, 0)
    request = produce_request(TOPIC, 0, batch)
    request.acks = acks
    return ErrorCode(told(await caller.at(place, ApiKey.PRODUCE, request, 12)).error_code)


async def write(caller: Caller, name: str, size: int = 0) -> float:
    """Until all in sync have it; the seconds that took."""
    loop = asyncio.get_running_loop()
    start_s = loop.time()
    while True:
        try:
            if await send(caller, name, ALL, size) == ErrorCode.none:
                return loop.time() - start_s
        except (ConnectionLost, Nobody):
            pass
        caller.forget_leader(TOPIC, 0)
        await caller.pause()


async def read(caller: Caller) -> list[str | None]:
    end = await sure_end(caller, (TOPIC, 0))
    found: list[str | None] = []
    at = 0
    while at < end:
        got = await Shelf(caller, READ_UNCOMMITTED).fetch((TOPIC, 0), at)
        if got is None:
            await caller.pause()
        else:
            found += [record.uid for record in got.records]
            at = got.after
    return found


def state(cluster: SimCluster) -> PartitionState:
    (orders,) = [state for state in cluster.states() if len(state.replicas) == 3]
    return orders


async def three_in_sync(seed: int) -> tuple[SimCluster, Caller, Machine, list[Machine]]:
    """A cluster with one topic: its leader and its followers."""
    cluster = SimCluster(seed, 3)
    cluster.start()
    caller = cluster.caller("client")
    await caller.create_topic(TOPIC, 1, {})
    assert await cluster.until(lambda: in_sync(cluster), 60), "the cluster does not come up"
    leader = state(cluster).leader
    return cluster, caller, cluster.machines[leader], [one for one in cluster.machines.values() if one.id != leader]


def test_acks_1_is_the_leaders_word_alone_and_dies_with_it() -> None:
    async def story() -> None:
        cluster, caller, leader, followers = await three_in_sync(11)
        for number in range(3):
            await write(caller, f"safe{number}")
        for follower in followers:
            cluster.network.cut(leader.name, follower.name)
        all_of_them = asyncio.ensure_future(send(caller, "unsaid", ALL))
        assert await send(caller, "trusted", ONE) == ErrorCode.none
        leader.kill()
        try:
            assert await all_of_them != ErrorCode.none, "acks=all was given while no follower had the record"
        except ConnectionLost:
            pass
        for follower in followers:
            cluster.network.reset(leader.name, follower.name)  # what was on its way is lost with it
        cluster.network.mend()
        await write(caller, "next")
        assert state(cluster).leader != leader.id
        leader.start()
        assert await cluster.until(lambda: in_sync(cluster), 120), "the old leader does not come back"
        assert await read(caller) == ["safe0", "safe1", "safe2", "next"]
        cluster.bury()

    run(story(), seed=11, limit_s=3600)


def test_a_follower_with_a_hundredth_of_the_speed_leaves_the_isr_until_it_is_freed() -> None:
    """Twenty clients write as fast as they are answered. The link to one follower carries a hundredth of that."""

    async def story() -> None:
        cluster, _, leader, followers = await three_in_sync(12)
        slow, _ = followers
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        took: list[tuple[float, float]] = []  # when one was acknowledged, and how long it took
        sent_bytes = 0

        async def client(number: int) -> None:
            nonlocal sent_bytes
            own, count = cluster.caller(f"client-{number}"), 0
            while not stop.is_set():
                seconds = await write(own, f"{number}/{count}", 10_000)
                took.append((loop.time(), seconds))
                sent_bytes += 10_000
                count += 1
                await asyncio.sleep(0.2)

        clients = [asyncio.ensure_future(client(number)) for number in range(20)]
        start_s = loop.time()
        await asyncio.sleep(5)
        normal_s = mean(seconds for _, seconds in took)
        cluster.network.narrow(leader.name, slow.name, sent_bytes / (loop.time() - start_s) / 100)
        left = await cluster.until(lambda: slow.id not in dict(state(cluster).isr), 30)
        assert left, "a follower that cannot keep up stays in sync"
        assert max(seconds for _, seconds in took) > 10 * normal_s, "nobody waited for the slow one: it was not slow"
        alone_s = loop.time()
        await asyncio.sleep(5)
        after_s = mean(seconds for at_s, seconds in took if at_s - seconds > alone_s)
        assert after_s < 2 * normal_s, f"acks=all takes {after_s} s without the slow follower, {normal_s} s before"
        cluster.network.mend()
        assert await cluster.until(lambda: slow.id in dict(state(cluster).isr), 60), "it does not come back"
        stop.set()
        await asyncio.gather(*clients)
        cluster.bury()

    run(story(), seed=12, limit_s=3600)
