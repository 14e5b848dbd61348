"""Latency of a client that sends little, beside one that sends at full speed.

Called by run.py, in rounds. One librdkafka producer sends at full speed; meanwhile another client, a bare socket, sends
one small message every 5 ms to a partition of its own. The time of a message counts from when it was due, also if it
was sent late because of the one before it. So if a broker starves the small client for a moment, every message due in
that time counts.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from bench import memory, topics
from bench.figures import Samples
from bench.latency import bare_producer
from bench.load import Generator, Order
from bench.peers import Peer

QUIET_TOPIC = "bench-quiet"
FLOOD_MESSAGES = 6_000_000
INTERVAL_SECONDS = 0.005
LEAD_SECONDS = 0.3  # until the flood is at full speed
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0}


class Neighbours:
    """The rounds. A quick run has rounds of the same length: shorter ones would have too few messages."""

    def __init__(self, generator: Generator, samples: Samples) -> None:
        self._generator, self._samples = generator, samples
        self._serial = itertools.count()

    def prepare(self, peers: Sequence[Peer]) -> None:
        for peer in peers:
            with peer.awake():
                topics.create(peer.address, QUIET_TOPIC)
                self._beside(peer, FLOOD_MESSAGES // 10)

    def round(self, peers: Sequence[Peer]) -> None:
        for peer in peers:
            memory.settle()
            with peer.awake():
                seconds, flood_rate = self._beside(peer, FLOOD_MESSAGES)
            self._samples.add_percentiles("beside", peer.name, seconds, PERCENTILES)
            self._samples.add("beside.rate", peer.name, flood_rate)

    def _beside(self, peer: Peer, messages: int) -> tuple[list[float], float]:
        """The latency of each small message, and the rate of the large ones."""
        name = f"bench-flood-{next(self._serial)}"
        with topics.temporary(peer.address, name) as topic, ThreadPoolExecutor(1) as pool:
            flood = pool.submit(self._generator.produce, peer, Order(topic, messages))
            time.sleep(LEAD_SECONDS)
            seconds = paced_seconds(peer.port, lambda: not flood.done())
            work = flood.result()
        return seconds, work.messages / work.seconds


def paced_seconds(port: int, goes_on: Callable[[], bool], topic: str = QUIET_TOPIC) -> list[float]:
    """Send one message every 5 ms, at least one: seconds from when each was due to its response."""
    seconds: list[float] = []
    with bare_producer(port, topic) as send:
        due = time.perf_counter()
        while not seconds or goes_on():
            time.sleep(max(0.0, due - time.perf_counter()))
            late = time.perf_counter() - due
            seconds.append(late + send())
            due += INTERVAL_SECONDS
    return seconds
