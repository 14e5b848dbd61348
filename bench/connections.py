"""What many clients cost a broker: open connections, idle long-polling consumers, and hundreds of busy clients.

Called by run.py, with the peers kept running and woken in turn as in throughput.py. The clients run in a child process,
swarm.py; this file measures the broker's memory and CPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import topics
from bench.figures import MIB, Samples
from bench.lag import LagWatch
from bench.peers import Peer
from bench.processes import Children, cpu_seconds, resident_bytes

FEW_PAIRS = 10
IDLE_PARTITIONS = 10
READY_SECONDS = 60.0
WARM_SECONDS = 1.0
IDLE_TOPIC, FEW_TOPIC, MANY_TOPIC = "bench-idle", "bench-few", "bench-many"


class Connections:
    """The three many-client measurements on all peers."""

    def __init__(self, children: Children, samples: Samples, lag: LagWatch) -> None:
        self._children, self._samples, self._lag = children, samples, lag

    def held_open(self, peers: Sequence[Peer], count: int) -> None:
        """The memory that `count` open connections add, each after its ApiVersions request."""
        for peer in peers:
            with peer.awake():
                before = resident_bytes(peer.pid)
                with self._swarm("hold", peer, count):
                    time.sleep(1.0)
                    self._samples.add("held.memory", peer.name, max(resident_bytes(peer.pid) - before, 0) / MIB)

    def prepare_held(self, peers: Sequence[Peer]) -> None:
        for peer in peers:
            with peer.awake(), self._swarm("hold", peer, FEW_PAIRS):
                pass

    def prepare_idle(self, peers: Sequence[Peer]) -> None:
        for peer in peers:
            with peer.awake():
                topics.create(peer.address, IDLE_TOPIC, IDLE_PARTITIONS)
                with self._swarm("idle", peer, IDLE_PARTITIONS, IDLE_TOPIC, IDLE_PARTITIONS):
                    time.sleep(1.0)

    def waiting(self, peers: Sequence[Peer], count: int, seconds: float) -> None:
        """CPU of a broker whose consumers all long-poll empty partitions with the stock wait of 500 ms."""
        for peer in peers:
            with peer.awake(), self._swarm("idle", peer, count, IDLE_TOPIC, IDLE_PARTITIONS):
                time.sleep(1.0)
                before, begin = cpu_seconds(peer.pid), time.monotonic()
                time.sleep(seconds)
                share = (cpu_seconds(peer.pid) - before) / (time.monotonic() - begin)
                self._samples.add("idle.cpu", peer.name, share * 100)

    def prepare_active(self, peers: Sequence[Peer], many: int) -> None:
        for peer in peers:
            with peer.awake():
                topics.create(peer.address, FEW_TOPIC, FEW_PAIRS)
                topics.create(peer.address, MANY_TOPIC, many)
                self._active(peer, FEW_TOPIC, FEW_PAIRS, WARM_SECONDS)
                self._active(peer, MANY_TOPIC, many, WARM_SECONDS)

    def working(self, peers: Sequence[Peer], many: int, seconds: float) -> None:
        """Records per second with `many` producers and as many consumers, compared with ten of each."""
        for peer in peers:
            with peer.awake():
                few = self._active(peer, FEW_TOPIC, FEW_PAIRS, seconds)
                with self._lag.stretch(peer):
                    lots = self._active(peer, MANY_TOPIC, many, seconds)
            for verb in ("produced", "consumed"):
                self._samples.add(f"active.few.{verb}", peer.name, few[verb])
                self._samples.add(f"active.many.{verb}", peer.name, lots[verb])
                self._samples.add(f"active.kept.{verb}", peer.name, lots[verb] / few[verb] * 100 if few[verb] else 0.0)

    def _active(self, peer: Peer, topic: str, pairs: int, seconds: float) -> dict[str, Any]:
        with self._swarm("active", peer, pairs, topic, seconds) as swarm:
            result = swarm.result(seconds + READY_SECONDS)
        if result["refusals"]:
            refusals = ", ".join(f"{count} times {what}" for what, count in result["refusals"].items())
            raise RuntimeError(f"{peer.name} rejected requests of {pairs} producers and consumers: {refusals}")
        return result

    @contextlib.contextmanager
    def _swarm(self, mode: str, peer: Peer, count: int, *rest: object) -> Iterator[Swarm]:
        """Runs the swarm; the block is entered when all of its clients are working."""
        command = [sys.executable, "-m", "bench.swarm", mode, str(peer.port), str(count), *map(str, rest)]
        process = self._children.start(command, piped=True, cwd=Path(__file__).parent.parent)
        swarm = Swarm(process, f"{count} {mode} clients of {peer.name}")
        try:
            swarm.ready()
            yield swarm
        finally:
            self._children.stop(process, seconds=5.0)


class Swarm:
    """The child process, reached through its pipes."""

    def __init__(self, process: subprocess.Popen[bytes], what: str) -> None:
        self._process, self._what, self._unread = process, what, b""

    def ready(self) -> None:
        line = self._line(READY_SECONDS)
        if line != "ready":
            raise RuntimeError(f"{self._what} did not get to work: {line or self._last_error()}")

    def result(self, seconds: float) -> dict[str, Any]:
        line = self._line(seconds)
        if not line.startswith("{"):
            raise RuntimeError(f"{self._what} did not finish: {line or self._last_error()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _line(self, seconds: float) -> str:
        """The child's next line; empty if it ended or at the timeout."""
        assert self._process.stdout is not None
        descriptor, deadline = self._process.stdout.fileno(), time.monotonic() + seconds
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                return ""
            data = os.read(descriptor, 65536)
            if not data:
                return ""
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def _last_error(self) -> str:
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "no output before the timeout"
        assert self._process.stderr is not None
        lines = self._process.stderr.read().decode().strip().splitlines()
        return lines[-1] if lines else f"it ended with status {self._process.returncode}"
