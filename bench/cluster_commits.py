"""Offset commits per second, for the two ways to store them in a cluster: a replicated topic, and ZooKeeper.

`python -m bench.cluster_commits`: three brokers, whose topic of offsets has three replicas, against three ZooKeeper
servers, one after the other on this machine. A configurable number of committers, each with one commit of one partition
in flight, all in one process. The results are in docs/decisions/0008.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from headrace.cli.local_cluster import BrokerProcess
from headrace.cli.local_zookeeper import LocalZooKeeper, free_ports
from headrace.client.connection import Connection
from headrace.cluster.zookeeper import ZooKeeperStore
from headrace.wire.api_keys import ApiKey
from headrace.wire.messages import Message
from headrace.world.clock import SystemClock
from headrace.world.net import RealNet

TOPIC = "orders"
SETTINGS = "offsets.topic.num.partitions=12\n"

Commit = Callable[[int], Awaitable[None]]  # the offset


async def rate(committers: list[Commit], seconds: float) -> float:
    """Commits a second of all of them together."""
    deadline = time.monotonic() + seconds
    done = 0

    async def work(commit: Commit) -> None:
        nonlocal done
        offset = 0
        while time.monotonic() < deadline:
            offset += 1
            await commit(offset)
            done += 1

    began = time.monotonic()
    await asyncio.gather(*map(work, committers))
    return done / (time.monotonic() - began)


# --- in a topic -----------------------------------------------------------------------------------------------------


async def topic_committer(connections: dict[tuple[str, int], Connection], first: Connection, group: str) -> Commit:
    """Finds the group's coordinator, as clients do."""
    while True:
        answer = (
            await first.call(ApiKey.FIND_COORDINATOR, Message(key_type=0, coordinator_keys=[group]))
        ).coordinators[0]
        if answer.error_code == 0:
            break
        await asyncio.sleep(0.2)
    place = (answer.host, answer.port)
    if place not in connections:
        connections[place] = await _connected(*place)
    connection = connections[place]

    async def commit(offset: int) -> None:
        partition = Message(partition_index=0, committed_offset=offset, committed_leader_epoch=-1)
        topic = Message(name=TOPIC, partitions=[partition])
        body = Message(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[topic])
        reply = await connection.call(ApiKey.OFFSET_COMMIT, body, 9)
        code = reply.topics[0].partitions[0].error_code
        assert code == 0, f"the commit was rejected with error {code}"

    return commit


async def _connected(host: str, port: int) -> Connection:
    connection = Connection(RealNet(), SystemClock(), host, port, "bench")
    await connection.open()
    return connection


async def topic_rate(port: int, committers: int, seconds: float) -> float:
    first = await _connected("127.0.0.1", port)
    topic = Message(name=TOPIC, num_partitions=1, replication_factor=3, assignments=[], configs=[])
    await first.call(ApiKey.CREATE_TOPICS, Message(topics=[topic], timeout_ms=30_000, validate_only=False))
    connections: dict[tuple[str, int], Connection] = {}
    commits = [await topic_committer(connections, first, f"group-{at}") for at in range(committers)]
    await asyncio.sleep(3)  # coordinators load, replicas come into sync
    await rate(commits, seconds / 4)
    return await rate(commits, seconds)


# --- in ZooKeeper ---------------------------------------------------------------------------------------------------


async def zookeeper_rate(hosts: str, committers: int, seconds: float) -> float:
    store = ZooKeeperStore(f"{hosts}/offsets", 10.0, SystemClock())
    await store.open()

    async def committer(at: int) -> Commit:
        path = f"/group-{at}"
        await store.create(path, b"")

        async def commit(offset: int) -> None:
            await store.set(path, b'{"orders":{"0":{"offset":%d,"epoch":-1}}}' % offset)

        return commit

    commits = [await committer(at) for at in range(committers)]
    await rate(commits, seconds / 4)
    result = await rate(commits, seconds)
    await store.close()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster_commits", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--committers", type=int, nargs="+", default=[1, 16, 128])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, contextlib.ExitStack() as cleaning:
        folder = Path(name)
        ports = free_ports(12)
        members = {number: (ports[number], ports[number + 3]) for number in (1, 2, 3)}
        servers = [LocalZooKeeper(folder / f"zk-{number}", ports[number + 6], number, members) for number in members]
        for server in servers:
            server.start()
            cleaning.callback(server.kill)
        for server in servers:
            server.wait_until_ready()
        hosts = ",".join(server.address for server in servers)
        config = folder / "broker.properties"
        config.write_text(SETTINGS)
        print("committers   ZooKeeper, commits/s   topic, commits/s")
        for count in options.committers:
            in_zookeeper = asyncio.run(zookeeper_rate(f"{hosts}/at-{count}", count, options.seconds))
            home = folder / f"cluster-{count}"
            home.mkdir()
            brokers = [
                BrokerProcess(home, number, f"{hosts}/cluster-{count}", port, ["--config", str(config)])
                for number, port in enumerate(free_ports(3), start=1)
            ]
            for broker in brokers:
                broker.start()
            try:
                for broker in brokers:
                    broker.wait_until_ready()
                in_topic = asyncio.run(topic_rate(brokers[0].port, count, options.seconds))
            finally:
                for broker in brokers:
                    broker.kill()
            print(f"{count:10}   {in_zookeeper:20,.0f}   {in_topic:16,.0f}", flush=True)


if __name__ == "__main__":
    main()
