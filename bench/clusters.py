"""Clusters under measurement: several broker processes, measured as one peer. Called by cluster.py.

Equal terms, as in peers.py: page cache, a background flush every second, replication factor and minimum of in-sync
replicas set on the topic by the caller. headrace keeps its metadata in ZooKeeper, whose CPU counts as the cluster's;
Kafka's controllers run inside its brokers. A cluster never sleeps under SIGSTOP, which would end its sessions: it is
started for a measurement and stopped after it.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from bench.peers import HOST, START_SECONDS, HeadraceRecipe, KafkaRecipe, PeerMissing
from bench.processes import Children, cpu_seconds, resident_bytes
from headrace.cli.local_cluster import BrokerProcess
from headrace.cli.local_zookeeper import LocalZooKeeper, free_ports

SESSION_MS = 6000
CLUSTER_ID = "aGVhZHJhY2UtYmVuY2gtMQ"


class Cluster:
    """Made by `headrace_cluster` or `kafka_cluster`; `start`, measure, `stop`."""

    def __init__(self, name: str, children: Children, home: Path, commands: Sequence[Sequence[str]], ports: list[int]):
        self.name = name
        self._children, self._home, self._commands, self._ports = children, home, commands, ports
        self._processes: list[subprocess.Popen[bytes]] = []
        self.zookeeper: LocalZooKeeper | None = None

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Of broker 1, broker 2 and so on."""
        return [(HOST, port) for port in self._ports]

    @property
    def address(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.addresses)

    def start(self) -> None:
        """Wait until every broker lists all brokers in its metadata."""
        if self.zookeeper is not None:
            self.zookeeper.start()
            self.zookeeper.wait_until_ready()
        for number, command in enumerate(self._commands, 1):
            self._processes.append(self._children.start(command, log=self._home / f"broker-{number}.log"))
        self._wait_until_all_are_there()

    def _wait_until_all_are_there(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        for port in self._ports:  # ask each one: the controller may be the last to learn of a broker
            admin = AdminClient({"bootstrap.servers": f"{HOST}:{port}", "log_level": 0})
            while not self._knows_all(admin):
                if time.monotonic() > deadline:
                    raise PeerMissing(f"{self.name}: not all of {len(self._ports)} brokers came; see {self._home}")
                time.sleep(0.1)

    def _knows_all(self, admin: AdminClient) -> bool:
        try:
            return len(admin.list_topics(timeout=2).brokers) == len(self._ports)
        except KafkaException:
            return False  # not yet

    def stop(self) -> None:
        processes, self._processes = self._processes, []
        for process in processes:
            self._children.stop(process, seconds=10.0)
        if self.zookeeper is not None:
            self.zookeeper.stop()

    def kill(self, number: int) -> None:
        """Kill one broker; returns when the process has ended."""
        process = self._processes[number - 1]
        process.kill()
        process.wait()

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds, self._everybody()))

    def resident_bytes(self) -> int:
        return sum(map(resident_bytes, self._everybody()))

    def _everybody(self) -> list[int]:
        brokers = [process.pid for process in self._processes]
        return brokers if self.zookeeper is None else [*brokers, self.zookeeper.pid]


def headrace_cluster(children: Children, home: Path, brokers: int, session_ms: int = SESSION_MS) -> Cluster:
    HeadraceRecipe().prepare(children)
    home.mkdir(parents=True)
    zookeeper_port, *ports = free_ports(1 + brokers)
    zookeeper = LocalZooKeeper(home / "zookeeper", zookeeper_port)
    settings = home / "broker.properties"
    settings.write_text(f"zookeeper.session.timeout.ms={session_ms}\n")
    commands = []
    for number, port in enumerate(ports, 1):
        options = ["--rack", f"r{number}", "--config", str(settings)]
        commands.append(BrokerProcess(home, number, zookeeper.address, port, options).command)
    cluster = Cluster(HeadraceRecipe.name, children, home, commands, ports)
    cluster.zookeeper = zookeeper
    return cluster


def kafka_cluster(children: Children, home: Path, brokers: int) -> Cluster:
    """Configured like the single broker in peers.py; every broker is also a controller, as in Kafka's quick start."""
    recipe = KafkaRecipe()
    recipe.prepare(children)
    free = free_ports(2 * brokers)
    ports, controllers = free[:brokers], free[brokers:]
    voters = ",".join(f"{number}@{HOST}:{port}" for number, port in enumerate(controllers, 1))
    commands = []
    for number, (port, controller) in enumerate(zip(ports, controllers, strict=True), 1):
        folder = home / f"broker-{number}"
        recipe.format_member(children, folder, number, port, controller, voters)
        commands.append(recipe.command(folder, port, 0))
    return Cluster(recipe.name, children, home, commands, ports)
