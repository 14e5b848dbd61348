"""A client that sends little beside one that sends as much as it can: how long its messages take.

Called by run.py, in rounds. One librdkafka producer sends at full speed; meanwhile another client, a bare socket, sends
one small message every 5 ms to a partition of its own. A message that is late because the one before it was is late
all the same: its time counts from when it should have been sent, so a broker that forgets its small client for a
moment is charged for every message that would have come then.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from bench import frames, memory, topics
from bench.figures import Samples, percentile
from bench.latency import MESSAGE_BYTES
from bench.load import Generator, Order
from bench.peers import HOST, Peer

QUIET_TOPIC = "bench-quiet"
FLOOD_MESSAGES = 6_000_000
INTERVAL_SECONDS = 0.005
LEAD_SECONDS = 0.3  # until the flood is at full speed
PERCENTILES = (("p50", 50.0), ("p90", 90.0), ("p99", 99.0))


class Neighbours:
    def __init__(self, generator: Generator, samples: Samples, scale: float) -> None:
        self._generator, self._samples = generator, samples
        self._messages = int(FLOOD_MESSAGES * scale)
        self._serial = itertools.count()

    def prepare(self, peers: Sequence[Peer]) -> None:
        for peer in peers:
            with peer.awake():
                topics.create(peer.address, QUIET_TOPIC)
                self._beside(peer, self._messages // 10)

    def round(self, peers: Sequence[Peer]) -> None:
        for peer in peers:
            memory.settle()
            with peer.awake():
                seconds, flood_rate = self._beside(peer, self._messages)
            for label, percent in PERCENTILES:
                self._samples.add(f"beside.{label}", peer.name, percentile(seconds, percent) * 1000)
            self._samples.add("beside.rate", peer.name, flood_rate)

    def _beside(self, peer: Peer, messages: int) -> tuple[list[float], float]:
        """Seconds that each small message took, and how many large ones were sent a second."""
        topic = f"bench-flood-{next(self._serial)}"
        topics.create(peer.address, topic)
        with ThreadPoolExecutor(1) as pool:
            flood = pool.submit(self._generator.produce, peer, Order(topic, messages))
            time.sleep(LEAD_SECONDS)
            seconds = paced_seconds(peer.port, lambda: not flood.done())
            work = flood.result()
        topics.delete(peer.address, topic)
        return seconds, work.messages / work.seconds


def paced_seconds(port: int, goes_on: Callable[[], bool]) -> list[float]:
    """One message every 5 ms for as long as that, at least one: seconds from when it was due to its answer."""
    batch = frames.record_batch(1, MESSAGE_BYTES, time.time_ns() // 1_000_000)
    seconds: list[float] = []
    with socket.create_connection((HOST, port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        due = time.perf_counter()
        while not seconds or goes_on():
            time.sleep(max(0.0, due - time.perf_counter()))
            connection.sendall(frames.produce(len(seconds), QUIET_TOPIC, 0, batch))
            error, _ = frames.produced(connection.recv(4096)[4:], QUIET_TOPIC)
            if error:
                raise RuntimeError(f"a message was refused with error {error}")
            seconds.append(time.perf_counter() - due)
            due += INTERVAL_SECONDS
    return seconds
