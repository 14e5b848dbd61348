"""Two racks 40 ms apart: the cost of acks=1 and acks=all, and what a remote consumer gains by follower fetching.

Called by run.py, which calls `measure`. The racks are network namespaces, created here and removed at the end
(distance.py adds the latency between them). This file also runs inside the first rack, `python -m bench.racks FOLDER
MESSAGES`, so that ZooKeeper, the leader and the producer are there; the follower, and the consumer that reads, run in
the second. It prints one line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench import load
from bench.distance import ADDRESSES
from bench.figures import Samples, percentile
from bench.load import Generator, Order
from bench.peers import HeadraceRecipe, PeerMissing, free_port
from bench.processes import Children
from headrace.cli.local_cluster import BrokerProcess
from headrace.cli.local_zookeeper import LocalZooKeeper

ROUND_TRIP_MS = 40.0
NEAR, FAR = "a", "b"
_RACK_BYTES = 1000
_START_SECONDS = 60.0
_RUN_SECONDS = 300.0


def measure(children: Children, folder: Path, samples: Samples, messages: int) -> None:
    if os.geteuid() != 0 or not shutil.which("ip") or not Path("/dev/net/tun").exists():
        raise PeerMissing("network namespaces need root, iproute2 and /dev/net/tun")
    with _racks(children, folder) as near:
        inside = [sys.executable, "-m", "bench.racks", str(folder / "racks"), str(messages), _far_of(near)]
        done = children.run(["ip", "netns", "exec", near, *inside], seconds=_RUN_SECONDS)
    if done.code != 0:
        raise RuntimeError(f"two racks: {done.reason()}")
    for key, value in json.loads(done.out.splitlines()[-1]).items():
        samples.add(f"racks.{key}", HeadraceRecipe.name, value)


def _far_of(near: str) -> str:
    return near.removesuffix(NEAR) + FAR


@contextlib.contextmanager
def _racks(children: Children, folder: Path) -> Iterator[str]:
    """The name of the first namespace; both are removed afterwards, with what runs in them."""
    names = [f"hr{os.getpid()}{rack}" for rack in (NEAR, FAR)]
    relay: subprocess.Popen[bytes] | None = None
    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        relay = children.start([sys.executable, "-m", "bench.distance", *names, str(ROUND_TRIP_MS)], piped=True)
        assert relay.stdout is not None
        if relay.stdout.readline().strip() != b"ready":
            raise RuntimeError("two racks: the relay between them did not start")
        yield names[0]
    finally:
        if relay is not None:
            children.stop(relay, seconds=1.0)
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(folder / "racks", ignore_errors=True)


# --- inside the first rack -------------------------------------------------------------------------------------------


class _Pair:
    """A leader here, a follower in the other rack."""

    name = HeadraceRecipe.name

    def __init__(self, children: Children, home: Path, far: str) -> None:
        self._children, self._home, self._far = children, home, far
        self._port = free_port()
        self.address = f"{ADDRESSES[0]}:{self._port}"

    def start(self) -> None:
        zookeeper = LocalZooKeeper(self._home / "zookeeper", free_port(), host=ADDRESSES[0])
        zookeeper.start()
        self._stop_zookeeper = zookeeper.stop
        zookeeper.wait_until_ready()
        for number, rack in ((1, NEAR), (2, FAR)):
            host, options = ADDRESSES[number - 1], ["--rack", rack]
            command = BrokerProcess(self._home, number, zookeeper.address, self._port, options, host).command
            prefix = [] if rack == NEAR else ["ip", "netns", "exec", self._far]
            self._children.start([*prefix, *command], log=self._home / f"broker-{number}.log")

    def stop(self) -> None:
        self._stop_zookeeper()

    def make_topic(self, name: str) -> None:
        """Create one partition led by the broker of this rack; retries until both brokers are up."""
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        topic = NewTopic(name, 1, replica_assignment=[[1, 2]], config={"min.insync.replicas": "2"})
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                admin.create_topics([topic], request_timeout=10.0)[name].result(15)
                return
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


def _measured(pair: _Pair, near: Generator, far: Generator, messages: int) -> dict[str, float]:
    pair.make_topic("racks")
    found: dict[str, float] = {}
    for acks in ("1", "all"):
        singles = Order("racks", messages, settings=(f"acks={acks}", "linger.ms=0"))
        seconds = near.acknowledgement_seconds(pair, singles)
        for percent in (50.0, 99.0):
            found[f"acks-{acks}.p{percent:.0f}"] = percentile(seconds, percent) * 1000
    many = messages * 20
    near.produce(pair, Order("racks", many, _RACK_BYTES, settings=("acks=all",)))
    for name, settings in (("leader", ()), ("follower", (f"client.rack={FAR}",))):
        work = far.consume(pair, Order("racks", many + 2 * messages, _RACK_BYTES, settings=settings))
        found[f"{name}.rate"] = work.messages / work.seconds
    return found


def main() -> None:
    home, messages, far = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    home.mkdir(parents=True)
    with Children() as children:
        near_generator = load.build(children)
        pair = _Pair(children, home, far)
        try:
            pair.start()
            found = _measured(pair, near_generator, near_generator.inside(["ip", "netns", "exec", far]), messages)
        finally:
            pair.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
