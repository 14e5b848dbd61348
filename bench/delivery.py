"""What stronger delivery guarantees cost: idempotent against plain produce, and transactions.

Called by run.py, in rounds. Plain and idempotent runs take turns within a round, and who goes first alternates, because
the machine's variation between two blocks of runs would hide a difference of five per cent. Each pair of runs gives one
`kept`: the idempotent run's messages a second in per cent of the plain run's. Both use acks=all, which idempotence
needs, so idempotence is the only difference; everything else is the client's default. The figures include librdkafka's
own cost of idempotence, so its CPU is reported beside the broker's; Kafka's Java producer has less overhead
(java_producer.py), and a bare socket has none (pipelined.py).

In transactions, one producer commits every 100 ms. Its queue is short, so that a commit does not wait for a second's
worth of queued messages; `transactions.period` is the measured time between commits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from bench import memory, pipelined, topics
from bench.figures import Samples
from bench.java_producer import JavaProducer
from bench.load import Generator, Order, Work
from bench.peers import Peer

Settings = tuple[str, ...]
PLAIN: Settings = ("acks=all",)
IDEMPOTENT: Settings = ("acks=all", "enable.idempotence=true")
QUEUE_MESSAGES = 50_000
IDEMPOTENT_MESSAGES, TRANSACTIONAL_MESSAGES, PIPELINED_BATCHES = 6_000_000, 4_000_000, 12_000
JAVA_MESSAGES, JAVA_PAIRS = 4_000_000, 2


class Delivery:
    """Rounds of both costs."""

    def __init__(
        self, generator: Generator, java: JavaProducer | None, samples: Samples, scale: float, pairs: int
    ) -> None:
        """Without Kafka's jars `java` is None, and its measurements are skipped."""
        self._generator, self._java, self._samples = generator, java, samples
        self._scale, self._pairs = scale, pairs
        self._serial = itertools.count()

    def prepare(self, peers: Sequence[Peer], messages: int) -> None:
        for peer in peers:
            with peer.awake():
                self._transactions(peer, messages)
                for settings in (PLAIN, IDEMPOTENT):
                    self._produce(peer, settings, messages)
                    self._pipelined(peer, settings)

    def round(self, peers: Sequence[Peer]) -> None:
        for peer in peers:
            memory.settle()
            with peer.awake():
                self._measure_transactions(peer)
            with peer.awake():
                self._measure_idempotence(peer)

    def _measure_transactions(self, peer: Peer) -> None:
        work, broker_cpu_seconds = self._transactions(peer, int(TRANSACTIONAL_MESSAGES * self._scale))
        self._samples.add("transactions.cpu", peer.name, broker_cpu_seconds / work.messages * 1e6)
        self._samples.add("transactions.rate", peer.name, work.messages / work.seconds)
        self._samples.add("transactions.period", peer.name, work.seconds / work.parts * 1000)

    def _measure_idempotence(self, peer: Peer) -> None:
        for number in range(self._pairs):
            self._pair(peer, "", self._through_librdkafka, number)
            self._pair(peer, "pipelined.", self._pipelined, number)
        if self._java is not None:
            for number in range(JAVA_PAIRS):
                self._pair(peer, "java.", self._through_java, number)

    def _pair(self, peer: Peer, key: str, measure: Callable[[Peer, Settings], float], number: int) -> None:
        rates: dict[Settings, float] = {}
        for settings in (PLAIN, IDEMPOTENT) if number % 2 == 0 else (IDEMPOTENT, PLAIN):
            memory.settle()
            rates[settings] = measure(peer, settings)
        self._samples.add(f"{key}plain.rate", peer.name, rates[PLAIN])
        self._samples.add(f"{key}idempotent.rate", peer.name, rates[IDEMPOTENT])
        self._samples.add(f"{key}idempotent.kept", peer.name, rates[IDEMPOTENT] / rates[PLAIN] * 100)

    def _through_librdkafka(self, peer: Peer, settings: Settings) -> float:
        work, broker_cpu_seconds = self._produce(peer, settings, int(IDEMPOTENT_MESSAGES * self._scale))
        millions, key = work.messages / 1e6, "plain" if settings is PLAIN else "idempotent"
        self._samples.add(f"{key}.cpu", peer.name, broker_cpu_seconds / millions)
        self._samples.add(f"{key}.generator", peer.name, work.generator_cpu_seconds / millions)
        return work.messages / work.seconds

    def _pipelined(self, peer: Peer, settings: Settings) -> float:
        batches = int(PIPELINED_BATCHES * self._scale)
        with self._topic(peer) as topic:
            prepared = pipelined.requests(topic, batches, idempotent=settings is IDEMPOTENT)
            return pipelined.messages_per_second(peer.port, topic, prepared)

    def _through_java(self, peer: Peer, settings: Settings) -> float:
        assert self._java is not None
        messages = int(JAVA_MESSAGES * self._scale)
        with self._topic(peer) as topic:
            return self._java.messages_per_second(peer, topic, messages, idempotent=settings is IDEMPOTENT)

    def _produce(self, peer: Peer, settings: Settings, messages: int) -> tuple[Work, float]:
        with self._topic(peer) as topic:
            order = Order(topic, messages, settings=settings)
            return peer.charged(lambda: self._generator.produce(peer, order))

    def _transactions(self, peer: Peer, messages: int) -> tuple[Work, float]:
        queue = f"queue.buffering.max.messages={QUEUE_MESSAGES}"
        with self._topic(peer) as topic:
            order = Order(topic, messages, settings=("acks=all", f"transactional.id={topic}", queue))
            return peer.charged(lambda: self._generator.transactions(peer, order))

    def _topic(self, peer: Peer) -> AbstractContextManager[str]:
        return topics.temporary(peer.address, f"bench-delivery-{next(self._serial)}")
