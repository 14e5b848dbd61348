"""A broker whose disk its clients fill goes on with everything but records, and comes back from a kill."""

from __future__ import annotations

import asyncio

import pytest

from headrace.client.blocking import ConnectionLost
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from headrace.wire.record import Record
from headrace.wire.records import encode_batch
from sim.clients.caller import Caller, Nobody
from sim.clients.producer import produce_request, told
from sim.clients.reader import Shelf
from sim.cluster import DATA, SimCluster
from sim.faults import in_sync
from sim.loop import run

TOPIC, GROUP = "orders", "shop"
RESERVE = 200_000
GROUPS = 0
BATCH = bytes(encode_batch([Record(0, 1_767_225_600_000, None, b"x" * 5_000, ())]))


async def produced(caller: Caller) -> ErrorCode:
    place, _ = await caller.leader(TOPIC, 0)
    return ErrorCode(told(await caller.at(place, ApiKey.PRODUCE, produce_request(TOPIC, 0, BATCH), 12)).error_code)


async def committed(caller: Caller, offset: int) -> ErrorCode:
    part = Message(partition_index=0, committed_offset=offset, committed_leader_epoch=-1)
    body = Message(
        group_id=GROUP, generation_id_or_member_epoch=-1, member_id="", topics=[Message(name=TOPIC, partitions=[part])]
    )
    answer = await caller.at_coordinator(GROUPS, GROUP, ApiKey.OFFSET_COMMIT, body, 9)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def until_committed(caller: Caller, offset: int) -> None:
    """A coordinator that has just been found loads first."""
    for _ in range(100):
        try:
            if await committed(caller, offset) is ErrorCode.none:
                return
        except (ConnectionLost, Nobody):
            caller.forget_coordinator(GROUPS, GROUP)
        await asyncio.sleep(0.2)
    raise AssertionError("the offset was never committed")


@pytest.mark.usefixtures("swept")
def test_a_full_disk_refuses_records_only_and_a_killed_broker_comes_back_on_it() -> None:
    async def story() -> None:
        cluster = SimCluster(11, 1, {"headrace.disk.reserve.bytes": str(RESERVE)})
        cluster.start()
        (machine,) = cluster.machines.values()
        caller = cluster.caller("client")
        await caller.create_topic(TOPIC, 1, {})
        assert await cluster.until(lambda: in_sync(cluster), 60)
        await until_committed(caller, 0)
        machine.disk.room_bytes = RESERVE + 50_000
        taken = 0
        while (answer := await produced(caller)) is ErrorCode.none:
            taken += 1
            assert taken < 100, "the reserve is not kept"
        assert answer is ErrorCode.kafka_storage_error
        assert taken >= 5
        await until_committed(caller, taken)
        machine.kill()
        await asyncio.sleep(6)
        machine.start()
        assert await cluster.until(lambda: machine.broker is not None and in_sync(cluster), 60)
        await until_committed(caller, taken - 1)
        caller.forget_leader(TOPIC, 0)
        assert await produced(caller) is ErrorCode.kafka_storage_error
        assert not machine.deaths, machine.deaths
        assert machine.disk.free_bytes(DATA) > 0
        machine.disk.room_bytes = None
        assert await produced(caller) is ErrorCode.none
        assert await caller.end_offset(TOPIC, 0) == taken + 1
        machine.kill()

    run(story(), seed=11, limit_s=3600)


@pytest.mark.parametrize("flush", ["page-cache", "fsync"])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.usefixtures("swept")
def test_a_start_without_a_free_byte_serves_readers_and_records_are_taken_when_there_is_room(
    clean: bool, flush: str
) -> None:
    async def story() -> None:
        cluster = SimCluster(12, 1, {"headrace.flush": flush, "log.segment.bytes": "20000"})
        cluster.start()
        (machine,) = cluster.machines.values()
        caller = cluster.caller("client")
        await caller.create_topic(TOPIC, 1, {})
        assert await cluster.until(lambda: in_sync(cluster), 60)
        for _ in range(10):
            assert await produced(caller) is ErrorCode.none
        if clean:
            await machine.stop()
        else:
            machine.kill()
        machine.disk.room_bytes = 0
        await asyncio.sleep(20)
        machine.start()
        assert await cluster.until(lambda: machine.broker is not None and in_sync(cluster), 60)
        caller.forget_leader(TOPIC, 0)
        fetched = await Shelf(caller, "read_uncommitted").fetch((TOPIC, 0), 0)
        assert fetched is not None
        assert fetched.records
        assert await produced(caller) is ErrorCode.kafka_storage_error
        await asyncio.sleep(30)
        assert not machine.deaths, machine.deaths
        machine.disk.room_bytes = None
        assert await produced(caller) is ErrorCode.none
        assert await caller.end_offset(TOPIC, 0) == 11
        machine.kill()

    run(story(), seed=12, limit_s=3600)
