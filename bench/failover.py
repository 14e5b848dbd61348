"""Failover time: from the SIGKILL of a broker until all partitions that it led accept writes again.

Called by run.py: three brokers, every partition on all of them, sessions of 3 s; a new cluster for each number of
partitions. The killed broker is the controller, which must be replaced before any election, or another broker. The
client reacts as fast as possible: it asks a live broker for the leaders five times a second, and sends one record
(acks=all) to every partition that has a new leader. librdkafka takes up to two seconds longer, because it refreshes
metadata once a second.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from bench import topics
from bench.clusters import Cluster, headrace_cluster
from bench.figures import Samples
from bench.processes import Children
from headrace.client.connection import Connection
from headrace.wire.api_keys import ApiKey
from headrace.wire.messages import Message
from headrace.wire.record import Record
from headrace.wire.records import encode_batch
from headrace.world.clock import SystemClock
from headrace.world.net import RealNet

TOPIC = "work"
BROKERS = 3
SESSION_MS = 3000
VICTIMS = ("broker", "controller")
PRODUCE_VERSION, METADATA_VERSION = 9, 9  # which know topics by name
_PATIENCE_S = 120.0
_LOOK_S = 0.2
_AT_ONCE = 100  # partitions in one request


class Failover:
    def __init__(self, children: Children, folder: Path, samples: Samples) -> None:
        self._children, self._folder, self._samples = children, folder, samples

    def measure(self, partitions: int, victim: str) -> None:
        home = self._folder / f"failover-{partitions}-{victim}"
        cluster = headrace_cluster(self._children, home, BROKERS, SESSION_MS)
        try:
            cluster.start()
            topics.create(cluster.address, TOPIC, partitions, replicas=BROKERS, min_isr=2)
            first_s, last_s = asyncio.run(_without_leader(cluster, victim, partitions))
        finally:
            cluster.stop()
            shutil.rmtree(home, ignore_errors=True)
        self._samples.add(f"failover.{victim}.{partitions}", cluster.name, last_s)
        print(f"the first write after {first_s:.2f} s, all after {last_s:.2f} s", file=sys.stderr, flush=True)


async def _without_leader(cluster: Cluster, victim: str, partitions: int) -> tuple[float, float]:
    """Seconds from the kill to the first acknowledgement, and to the last."""
    client = _Client()
    try:
        await client.open(cluster.addresses)
        await client.write_to_all(range(partitions))  # a partition's files are created with its first record
        controller, leaders = await client.look()
        number = controller if victim == "controller" else min(client.brokers - {controller})
        cluster.kill(number)
        killed_s = time.monotonic()
        client.forget(number)
        written_s = await client.write_to_all(index for index, leader in leaders.items() if leader == number)
    finally:
        client.close()
    return min(written_s) - killed_s, max(written_s) - killed_s


class _Client:
    """One connection to each broker. A broker's number is its place in the list of addresses, from one on."""

    def __init__(self) -> None:
        self._connections: dict[int, Connection] = {}
        self._record = bytes(encode_batch([Record(offset=0, timestamp=0, key=None, value=b"x" * 100)]))

    async def open(self, addresses: Iterable[tuple[str, int]]) -> None:
        for number, (host, port) in enumerate(addresses, 1):
            self._connections[number] = Connection(RealNet(), SystemClock(), host, port, "bench", _PATIENCE_S)
            await self._connections[number].open()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    @property
    def brokers(self) -> set[int]:
        return set(self._connections)

    def forget(self, number: int) -> None:
        self._connections.pop(number).close()

    async def look(self) -> tuple[int, dict[int, int]]:
        """The controller, and who leads which partition, as one broker sees it."""
        asked = Message(topics=[Message(name=TOPIC)], allow_auto_topic_creation=False)
        connection = next(iter(self._connections.values()))
        answer = await connection.call(ApiKey.METADATA, asked, METADATA_VERSION)
        states = answer.topics[0].partitions
        return answer.controller_id, {state.partition_index: state.leader_id for state in states}

    async def write(self, leaders: Mapping[int, int]) -> dict[int, float]:
        """Send one record to each of these partitions; returns when each was acknowledged, if it was."""
        by_leader: dict[int, list[int]] = {}
        for index, leader in leaders.items():
            by_leader.setdefault(leader, []).append(index)
        asked = [
            self._write(broker, indexes[at : at + _AT_ONCE])
            for broker, indexes in by_leader.items()
            if broker in self._connections
            for at in range(0, len(indexes), _AT_ONCE)
        ]
        return {index: at_s for written in await asyncio.gather(*asked) for index, at_s in written.items()}

    async def _write(self, broker: int, indexes: list[int]) -> dict[int, float]:
        data = Message(name=TOPIC, partition_data=[Message(index=index, records=self._record) for index in indexes])
        body = Message(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[data])
        answer = await self._connections[broker].call(ApiKey.PRODUCE, body, PRODUCE_VERSION)
        now_s = time.monotonic()
        return {part.index: now_s for part in answer.responses[0].partition_responses if part.error_code == 0}

    async def write_to_all(self, partitions: Iterable[int]) -> list[float]:
        """When each was acknowledged."""
        open_, written = set(partitions), dict[int, float]()
        deadline_s = time.monotonic() + _PATIENCE_S
        while open_:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{len(open_)} partitions accepted no write within {_PATIENCE_S:.0f} s")
            _, leaders = await self.look()
            # This broker may not know all of them yet.
            written |= await self.write({index: leaders[index] for index in open_ if index in leaders})
            open_ -= written.keys()
            if open_:
                await asyncio.sleep(_LOOK_S)
        return list(written.values())
