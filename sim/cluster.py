"""A whole cluster in one process: brokers on separate simulated computers, a network, a ZooKeeper, and virtual time.

Each broker runs the real code (headrace/server/broker.py), with simulated implementations of disk, clock and network:
its disk can lose power, its clock can be set wrong, its links can be cut, and its process can be paused or killed
between any two steps. A broker that stops by itself is restarted after a while, as a supervisor does, and its reason is
recorded. One seed gives one run. Called by sim/story.py and by tests; faults are chosen in sim/faults.py.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from headrace.client.blocking import Address
from headrace.cluster import znodes
from headrace.cluster.znodes import PartitionState
from headrace.model.broker_config import broker_config
from headrace.server.broker import Broker
from headrace.world.entropy import SeededEntropy
from headrace.world.world import World
from sim.clients.caller import Caller
from sim.computing import SimComputing
from sim.disk import SimDisk
from sim.loop import SimClock
from sim.net import SimNetwork
from sim.process import Process
from sim.zookeeper import SimZooKeeper

DATA = Path("/data")
PORT = 9092
_RESTART_S = 1.0
_MOST_DEATHS = 100  # limits the restarts of a broker that keeps failing: each start leaves memory behind
_SWEEPS = 10  # bounded: another thread may create garbage as fast as it is collected
SETTINGS = {
    "group.initial.rebalance.delay.ms": "100",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "replica.lag.time.max.ms": "4000",
    "replica.fetch.wait.max.ms": "1000",
}


class Machine:
    """One computer and the broker on it."""

    def __init__(self, cluster: SimCluster, broker_id: int, settings: dict[str, str]) -> None:
        self.id = broker_id
        self.name = f"broker-{broker_id}"
        self.clock = SimClock()
        self.disk = SimDisk(random.Random(f"disk {cluster.seed} {broker_id}"))
        self.lost_disks: list[SimDisk] = []
        self.deaths: list[BaseException] = []
        self._cluster = cluster
        self._settings = settings
        self._lives = 0
        self._clock_off_ms = 0
        self.process: Process | None = None
        self.broker: Broker | None = None

    @property
    def running(self) -> bool:
        return self.process is not None

    @property
    def epoch(self) -> int | None:
        """The broker epoch that the running process has registered, None if there is none."""
        return None if self.broker is None or self.broker.epoch < 0 else self.broker.epoch

    def start(self) -> None:
        """Starts the broker, and restarts it whenever it ends by itself, as a supervisor does."""
        if self.process is None:
            self._lives += 1
            self._cluster.network.power_back(self.name)
            self.process = Process(self.name)
            self.process.start(self._serve(self.process))

    async def _serve(self, process: Process) -> None:
        cluster = self._cluster
        config = replace(broker_config(self._settings), broker_id=self.id, rack=self.name)
        entropy = SeededEntropy(hash((cluster.seed, self.id, self._lives)))
        computing = SimComputing(random.Random(f"computing {cluster.seed} {self.id} {self._lives}"))
        world = World(self.clock, self.disk, cluster.network.host(self.name), entropy, computing)
        broker = self.broker = Broker(
            world, config, DATA, (self.name, PORT), open_store=lambda: cluster.ensemble.connect(self.name)
        )
        try:
            await broker.start()
            await broker.failed()
        except Exception as error:
            if process is self.process:
                self.deaths.append(error)
                loop = asyncio.get_running_loop()
                loop.call_soon(self._died, process, context=cluster.network.context)

    def _died(self, process: Process) -> None:
        if process is self.process:
            self.kill()
            if len(self.deaths) < _MOST_DEATHS:
                asyncio.get_running_loop().call_later(_RESTART_S, self.start)

    async def stop(self) -> None:
        """A clean stop without a time limit; a broker that is still starting is killed."""
        process, broker = self.process, self.broker
        if process is None or broker is None:
            return
        stopping = process.start(broker.stop())
        await asyncio.wait([stopping], timeout=30)
        if process is self.process:
            self.kill()

    def kill(self) -> None:
        """SIGKILL: what was written stays."""
        if self.process is not None:
            self.process.kill()
            self._cluster.forget(self.process)
            self.process = self.broker = None
            self._cluster.network.process_died(self.name)
            self.disk.process_died()

    def cut_power(self) -> None:
        """Unsynced writes are lost, kept or torn; peers are not notified."""
        if self.process is not None:
            self.process.kill()
            self._cluster.forget(self.process)
            self.process = self.broker = None
        self._cluster.network.power_lost(self.name)
        self.disk.crash(self._cluster.random)

    def set_clock_off(self, by_ms: int) -> None:
        """Shifts the wall clock by this much."""
        self.clock.jump(by_ms - self._clock_off_ms)
        self._clock_off_ms = by_ms

    def replace_disk(self) -> None:
        """Replaces the disk with an empty one."""
        assert self.process is None, "stop the broker first"
        self.lost_disks.append(self.disk)
        self.disk = SimDisk(random.Random(f"disk {self._cluster.seed} {self.id} {len(self.lost_disks)}"))


class SimCluster:
    def __init__(self, seed: int, brokers: int = 3, settings: dict[str, str] | None = None) -> None:
        self.seed = seed
        self.random = random.Random(f"cluster {seed}")
        self.network = SimNetwork(seed)
        self.ensemble = SimZooKeeper(seed)
        own = SETTINGS | (settings or {})
        self.machines = {number: Machine(self, number, own) for number in range(1, brokers + 1)}
        self.graves: list[Process] = []  # kept, so that tasks of killed processes are not collected while others run
        self._callers = 0

    def start(self) -> None:
        for machine in self.machines.values():
            machine.start()

    def forget(self, process: Process) -> None:
        self.graves.append(process)

    def bury(self) -> None:
        """Release everything; the cluster cannot be used after this. Tasks of killed processes are collected now, not
        while the next cluster runs: their `finally` blocks run without a loop and may raise."""
        complaints, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
        try:
            with warnings.catch_warnings(action="ignore"):
                for process in self.graves:
                    process.let_go()
                del self.graves, self.machines, self.network, self.ensemble
                for _ in range(_SWEEPS):
                    if not gc.collect():  # a `finally` may keep others alive for one more pass
                        break
        finally:
            sys.unraisablehook = complaints

    @property
    def hosts(self) -> Sequence[str]:
        return [machine.name for machine in self.machines.values()]

    def caller(self, name: str) -> Caller:
        """A connection for a client, from its own host, which no fault affects."""
        self._callers += 1
        places = [Address(host, PORT) for host in self.hosts]
        seed = hash((self.seed, self._callers))
        return Caller(self.network.host(name), SimClock(), places, name, seed)

    def states(self) -> list[PartitionState]:
        """The state of every partition in ZooKeeper."""
        found = []
        for folder in self.ensemble.names_below(znodes.PARTITIONS):
            for index in self.ensemble.names_below(f"{znodes.PARTITIONS}/{folder}"):
                path = f"{znodes.PARTITIONS}/{folder}/{index}"
                node = self.ensemble.peek(path)
                if node is not None:
                    found.append(znodes.decode_partition(path, node[0]))
        return found

    def replicas(self, topic: str) -> list[tuple[int, ...]]:
        """Of each partition, as ZooKeeper knows them."""
        node = self.ensemble.peek(znodes.topic_path(topic))
        assert node is not None, f"there is no topic {topic}"
        stored = znodes.decode_topic(topic, node[0])
        states = [self.ensemble.peek(znodes.partition_path(stored.id, index)) for index in range(stored.partitions)]
        return [znodes.decode_partition(topic, state[0]).replicas for state in states if state is not None]

    async def until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Whether it became true in time."""
        deadline_s = asyncio.get_running_loop().time() + limit_s
        while not condition():
            if asyncio.get_running_loop().time() > deadline_s:
                return False
            await asyncio.sleep(0.1)
        return True
