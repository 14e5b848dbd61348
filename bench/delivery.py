"""What a surer delivery costs: idempotent beside plain produce on headrace, and transactions on both brokers.

Called by run.py, in rounds. Plain and idempotent runs take turns within a round, and who goes first alternates, because
a difference of five per cent would drown in what the machine does between two blocks of runs. Each pair of runs
gives one `idempotent.kept`: the idempotent run's messages a second in per cent of the plain run's. Both ask for
acks=all, which idempotence needs, so that this is all they differ in; everything else is librdkafka's default.

In transactions, one producer commits every 100 ms. Its queue is short, so that a commit does not first wait for a
second's worth of messages handed over ahead of it; `transactions.period` is the time between commits that came out.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

from bench import topics
from bench.figures import Samples
from bench.load import Generator, Order, Work
from bench.peers import HeadraceRecipe, Peer
from bench.processes import cpu_seconds

PLAIN = ("acks=all",)
IDEMPOTENT = ("acks=all", "enable.idempotence=true")
QUEUE_MESSAGES = 50_000
IDEMPOTENT_MESSAGES, TRANSACTIONAL_MESSAGES = 2_000_000, 4_000_000


class Delivery:
    """Rounds of both costs."""

    def __init__(self, generator: Generator, samples: Samples, scale: float, pairs: int) -> None:
        self._generator, self._samples, self._scale, self._pairs = generator, samples, scale, pairs
        self._serial = itertools.count()

    def prepare(self, peers: Sequence[Peer], messages: int) -> None:
        for peer in peers:
            with peer.awake():
                self._transactions(peer, messages)
                if peer.name == HeadraceRecipe.name:
                    self._produce(peer, PLAIN, messages)
                    self._produce(peer, IDEMPOTENT, messages)

    def round(self, peers: Sequence[Peer]) -> None:
        for peer in peers:
            os.sync()
            with peer.awake():
                self._measure_transactions(peer)
            if peer.name == HeadraceRecipe.name:
                with peer.awake():
                    self._measure_idempotence(peer)

    def _measure_transactions(self, peer: Peer) -> None:
        before = cpu_seconds(peer.pid)
        work = self._transactions(peer, int(TRANSACTIONAL_MESSAGES * self._scale))
        self._samples.add("transactions.cpu", peer.name, (cpu_seconds(peer.pid) - before) / work.messages * 1e6)
        self._samples.add("transactions.rate", peer.name, work.messages / work.seconds)
        self._samples.add("transactions.period", peer.name, work.seconds / work.parts * 1000)

    def _measure_idempotence(self, peer: Peer) -> None:
        for number in range(self._pairs):
            rates: dict[tuple[str, ...], float] = {}
            for settings in (PLAIN, IDEMPOTENT) if number % 2 == 0 else (IDEMPOTENT, PLAIN):
                os.sync()
                work = self._produce(peer, settings, int(IDEMPOTENT_MESSAGES * self._scale))
                rates[settings] = work.messages / work.seconds
            self._samples.add("plain.rate", peer.name, rates[PLAIN])
            self._samples.add("idempotent.rate", peer.name, rates[IDEMPOTENT])
            self._samples.add("idempotent.kept", peer.name, rates[IDEMPOTENT] / rates[PLAIN] * 100)

    def _produce(self, peer: Peer, settings: tuple[str, ...], messages: int) -> Work:
        topic = self._new_topic(peer)
        work = self._generator.produce(peer, Order(topic, messages, settings=settings))
        topics.delete(peer.address, topic)
        return work

    def _transactions(self, peer: Peer, messages: int) -> Work:
        topic = self._new_topic(peer)
        queue = f"queue.buffering.max.messages={QUEUE_MESSAGES}"
        settings = ("acks=all", f"transactional.id={topic}", queue)
        work = self._generator.transactions(peer, Order(topic, messages, settings=settings))
        topics.delete(peer.address, topic)
        return work

    def _new_topic(self, peer: Peer) -> str:
        topic = f"bench-delivery-{next(self._serial)}"
        topics.create(peer.address, topic)
        return topic
