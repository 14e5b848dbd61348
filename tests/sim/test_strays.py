"""A broker that was off while its partition moved away gives up what it has on disk, and nobody loses anything."""

from __future__ import annotations

import asyncio

import pytest

from headrace.wire.messages import Message
from sim.cluster import DATA, SimCluster
from sim.loop import run
from tests.sim.test_lost_disk import TOPIC, read, write

ALTER_REASSIGNMENTS, CREATE_TOPICS = 45, 19
DELAY_S = 600


@pytest.mark.usefixtures("swept")
def test_what_was_moved_while_a_broker_was_off_is_set_aside_and_removed_later() -> None:
    async def story() -> None:
        cluster = SimCluster(5, 3, {"headrace.stray.delete.delay.ms": str(DELAY_S * 1000)})
        cluster.start()
        one = cluster.machines[1]
        caller = cluster.caller("client")
        await caller.create_topic("others", 1, {}, replicas=3)  # returns when all brokers are there
        assigned = Message(partition_index=0, broker_ids=[1, 2])
        topic = Message(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=[assigned], configs=[])
        made = await caller.anywhere(CREATE_TOPICS, Message(topics=[topic], timeout_ms=5000))
        assert made.topics[0].error_code == 0
        for number in range(5):
            await write(caller, number)
        assert f"{TOPIC}-0" in one.disk.list_dir(DATA)
        one.kill()
        await asyncio.sleep(6)
        moved = [Message(name=TOPIC, partitions=[Message(partition_index=0, replicas=[2, 3])])]
        answer = await caller.anywhere(ALTER_REASSIGNMENTS, Message(topics=moved, timeout_ms=5000))
        assert [part.error_code for part in answer.responses[0].partitions] == [0]
        assert await cluster.until(lambda: cluster.replicas(TOPIC) == [(2, 3)], 60)
        one.start()
        assert await cluster.until(lambda: f"{TOPIC}-0.0.stray" in one.disk.list_dir(DATA), 60)
        assert f"{TOPIC}-0" not in one.disk.list_dir(DATA)
        await asyncio.sleep(DELAY_S + 60)
        assert not [name for name in one.disk.list_dir(DATA) if name.startswith(TOPIC)]
        assert await read(caller) == [f"uid{number}" for number in range(5)]
        assert not one.deaths, one.deaths
        for machine in cluster.machines.values():
            machine.kill()

    run(story(), seed=5, limit_s=7200)
