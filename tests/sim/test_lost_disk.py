"""A disk that lost its content: the broker that has it is never taken for one that lost nothing.

Also when a simulation may take a disk at all: `in_sync` (sim/faults.py) asks for the running process of each replica.
"""

from __future__ import annotations

import asyncio

import pytest

from headrace.client.blocking import ConnectionLost
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

TOPIC = "orders"


async def write(caller: Caller, number: int) -> None:
    """Until it is acknowledged."""
    batch = encode_batch([Record(0, 1_767_225_600_000, None, b"uid%d\n\n\n" % number, ())])
    while True:
        try:
            place, _ = await caller.leader(TOPIC, 0)
            if (
                told(await caller.at(place, ApiKey.PRODUCE, produce_request(TOPIC, 0, batch), 12)).error_code
                == ErrorCode.none
            ):
                return
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


@pytest.mark.usefixtures("swept")
@pytest.mark.parametrize("flush", ["fsync", "page-cache"])
def test_who_comes_back_with_an_empty_disk_leads_only_when_it_has_everything_again(flush: str) -> None:
    async def story() -> None:
        cluster = SimCluster(7, 3, {"headrace.flush": flush})
        cluster.start()
        caller = cluster.caller("client")
        await caller.create_topic(TOPIC, 1, {})
        assert await cluster.until(lambda: in_sync(cluster), 60)
        for number in range(5):
            await write(caller, number)
        one, two, three = cluster.machines.values()
        await asyncio.sleep(2)  # everything is on disk, also where nobody waits for that
        two.kill()
        await asyncio.sleep(6)
        one.kill()
        one.replace_disk()
        await asyncio.sleep(6)
        three.kill()
        await asyncio.sleep(6)
        one.start()
        await asyncio.sleep(10)
        two.start()
        three.start()
        assert await cluster.until(lambda: in_sync(cluster), 120), "the cluster does not come back"
        assert await read(caller) == [f"uid{number}" for number in range(5)]
        cluster.bury()

    run(story(), seed=7, limit_s=3600)


def lose(machine: Machine, fault: str) -> None:
    if fault == "power":
        machine.cut_power()
    else:
        machine.kill()
        machine.replace_disk()


async def came_up(seed: int) -> tuple[SimCluster, Caller]:
    cluster = SimCluster(seed, 3)
    cluster.start()
    caller = cluster.caller("client")
    await caller.create_topic(TOPIC, 1, {})
    assert await cluster.until(lambda: in_sync(cluster), 60), "the cluster does not come up"
    return cluster, caller


@pytest.mark.usefixtures("swept")
@pytest.mark.parametrize("fault", ["power", "wipe"])
@pytest.mark.parametrize("zookeeper", ["there", "away"])
def test_a_broker_that_lost_writes_is_in_sync_only_once_its_new_process_is(fault: str, zookeeper: str) -> None:
    """Until the session of the old process ends, every ISR still names it, and every broker runs."""

    async def story() -> None:
        cluster, _ = await came_up(8)
        machine = cluster.machines[2]
        lost = machine.epoch
        if zookeeper == "away":
            cluster.ensemble.stop()
        lose(machine, fault)
        machine.start()
        assert not in_sync(cluster)
        if zookeeper == "away":
            assert not await cluster.until(lambda: in_sync(cluster), 10)
            cluster.ensemble.start()
        assert await cluster.until(lambda: in_sync(cluster), 60), "the cluster does not come back"
        assert machine.epoch is not None
        assert machine.epoch > (lost or 0)
        assert all((2, machine.epoch) in state.isr for state in cluster.states())
        cluster.bury()

    run(story(), seed=8, limit_s=3600)


@pytest.mark.usefixtures("swept")
@pytest.mark.parametrize("zookeeper", ["there", "away"])
@pytest.mark.parametrize("faults", [("power", "wipe", "wipe"), ("wipe", "wipe", "power"), ("wipe", "wipe", "wipe")])
def test_nothing_is_lost_when_every_disk_is_taken_as_soon_as_that_is_permitted(
    faults: tuple[str, ...], zookeeper: str
) -> None:
    async def story() -> None:
        cluster, caller = await came_up(9)
        for number in range(5):
            await write(caller, number)
        if zookeeper == "away":
            cluster.ensemble.stop()
            asyncio.get_running_loop().call_later(10, cluster.ensemble.start, context=cluster.ensemble.context)
        for machine, fault in zip(cluster.machines.values(), faults, strict=True):
            assert await cluster.until(lambda: in_sync(cluster), 120), "the cluster does not come back"
            lose(machine, fault)
            machine.start()
        assert await cluster.until(lambda: in_sync(cluster), 120), "the cluster does not come back"
        assert await read(caller) == [f"uid{number}" for number in range(5)]
        cluster.bury()

    run(story(), seed=9, limit_s=3600)
