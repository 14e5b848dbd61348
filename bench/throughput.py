"""Messages per second and broker CPU per million messages, for produce and consume, and the memory afterwards.

Called by run.py. For each round and each kind of work, each peer is resumed, measured and suspended, in alternating
order, so that a disturbance of the machine affects both. Dirty pages are flushed before each measurement, so that no
peer pays for the other's.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from bench import memory, topics
from bench.figures import MIB, Samples
from bench.lag import LagWatch
from bench.load import Generator, Order, Work
from bench.peers import Peer
from bench.processes import resident_bytes

# One librdkafka consumer decodes on one thread; one consumer per core keeps the generator from being the limit.
READERS = 2
# Stock consumers pause a second when their queue is full, which would measure the pause.
EAGER = ("queued.min.messages=1000000", "fetch.queue.backoff.ms=1")


@dataclass(frozen=True)
class Kind:
    """One kind of work. Produce kinds write to a fresh topic; the consume kind reads one that was filled before."""

    key: str
    messages: int
    size: int = 100
    partitions: int = 1
    settings: tuple[str, ...] = ()
    reads: bool = False

    def order(self, topic: str) -> Order:
        clients = READERS if self.reads else 1
        return Order(topic, self.messages, self.size, self.partitions, clients, self.settings)


def kinds(scale: float) -> tuple[Kind, ...]:
    """The four kinds of work; a quick run takes a fraction of the messages."""
    return (
        Kind("produce", int(3_000_000 * scale)),
        Kind("small", int(700_000 * scale), settings=("batch.size=16384",)),
        Kind("spread", int(500_000 * scale), size=1000, partitions=4),
        Kind("consume", int(3_000_000 * scale), partitions=READERS, settings=EAGER, reads=True),
    )


class Throughput:
    """All rounds of all kinds on all peers."""

    def __init__(self, generator: Generator, samples: Samples, lag: LagWatch, work: Sequence[Kind]) -> None:
        self._generator, self._samples, self._lag, self._work = generator, samples, lag, work
        self._serial = itertools.count()

    def prepare(self, peers: Sequence[Peer], warm_up: Sequence[Kind]) -> None:
        """Fill the topic to read, and do the warm-up's work unmeasured."""
        for peer in peers:
            with peer.awake():
                for kind in self._work:
                    if kind.reads:
                        topics.create(peer.address, _topic(kind), kind.partitions)
                        self._generator.produce(peer, Order(_topic(kind), kind.messages, 100, kind.partitions))
                for kind in warm_up:
                    self._run(peer, kind)

    def round(self, peers: Sequence[Peer]) -> None:
        for kind in self._work:
            for peer in peers:
                memory.settle()
                with peer.awake(), self._lag.stretch(peer):
                    self._measure(peer, kind)
        for peer in peers:
            self._samples.add("memory", peer.name, resident_bytes(peer.pid) / MIB)

    def _measure(self, peer: Peer, kind: Kind) -> None:
        work, broker_cpu_seconds = self._run(peer, kind)
        millions = work.messages / 1e6
        self._samples.add(f"{kind.key}.rate", peer.name, work.messages / work.seconds)
        self._samples.add(f"{kind.key}.mb", peer.name, work.payload_bytes / 1e6 / work.seconds)
        self._samples.add(f"{kind.key}.cpu", peer.name, broker_cpu_seconds / millions)
        self._samples.add(f"{kind.key}.generator", peer.name, work.generator_cpu_seconds / millions)

    def _run(self, peer: Peer, kind: Kind) -> tuple[Work, float]:
        if kind.reads:
            return peer.charged(lambda: self._generator.consume(peer, kind.order(_topic(kind))))
        with topics.temporary(peer.address, f"{_topic(kind)}-{next(self._serial)}", kind.partitions) as topic:
            return peer.charged(lambda: self._generator.produce(peer, kind.order(topic)))


def _topic(kind: Kind) -> str:
    return f"bench-{kind.key}"
