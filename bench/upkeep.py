"""What delayed messages and views cost those who do not use them: alternating pairs of the same work.

Used by the sections "delays" and "views", on headrace alone. Each pair is two runs, right after each other, that differ
in one thing; which of them goes first alternates. Each pair gives one figure: the second kind's messages a second in
per cent of the first's. Their spread says how much of a difference the machine itself makes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from bench import memory, pipelined, topics
from bench.figures import Samples
from bench.load import Generator, Order
from bench.peers import HeadraceRecipe, Peer
from bench.processes import Children
from bench.startup import in_turn

SETTING: Mapping[str, str] = {"headrace.delay.enable": "true"}
WARM_UP = 200_000
BATCHES_PER_MESSAGE = 1 / pipelined.RECORDS

Rate = Callable[[], float]
Way = Callable[[Peer, Mapping[str, str], int], float]


class Upkeep:
    def __init__(self, children: Children, folder: Path, generator: Generator, samples: Samples, messages: int) -> None:
        self._children, self._folder, self._generator = children, folder, generator
        self._samples, self._messages = samples, messages
        self._serial = itertools.count()

    def of_the_setting(self, peer: Peer, pairs: int) -> None:
        """A topic that could hold delayed messages and has none, beside a plain topic of the same broker."""
        ways = {"delays.kept": self.produced, "delays.pipelined.kept": self._pipelined}
        for key, way in ways.items():
            way(peer, {}, WARM_UP)
            way(peer, SETTING, WARM_UP)
            plain, enabled = (partial(self._charged, key, way, peer, settings) for settings in ({}, SETTING))
            self.pairs(key, pairs, plain, enabled)

    def _charged(self, key: str, way: Way, peer: Peer, settings: Mapping[str, str]) -> float:
        """Messages a second; the broker's CPU is noted too, which says the same with less noise."""
        rate, cpu_seconds = peer.charged(lambda: way(peer, settings, self._messages))
        what = "enabled" if settings else "plain"
        self._samples.add(f"{key}.{what}.cpu", peer.name, cpu_seconds / self._messages * 1e6)
        return rate

    def of_others(self, peer: Peer, key: str, pairs: int) -> None:
        """A plain topic of this broker, beside one of a broker that has nothing else to do."""
        with self.idle_broker() as idle:
            self.produced(idle, {}, WARM_UP)
            idle.sleep()
            peer.sleep()
            self.pairs(key, pairs, lambda: self._awake(idle), lambda: self._awake(peer))
        peer.wake()

    def pairs(self, key: str, pairs: int, plain: Rate, other: Rate) -> None:
        for number in range(pairs):
            rates: list[float] = []
            for rate in in_turn((plain, other), number):
                memory.settle()
                rates.append(rate())
            of_plain, of_other = in_turn(rates, number)
            self._samples.add(key, HeadraceRecipe.name, 100 * of_other / of_plain)

    def produced(self, peer: Peer, settings: Mapping[str, str], messages: int) -> float:
        """Messages a second, through librdkafka, to a new topic with these settings."""
        with self._topic(peer, settings) as topic:
            work = self._generator.produce(peer, Order(topic, messages))
        return work.messages / work.seconds

    @contextmanager
    def idle_broker(self) -> Iterator[Peer]:
        idle = Peer(HeadraceRecipe(), self._children, self._folder / f"idle-{next(self._serial)}")
        idle.format()
        idle.start()
        try:
            yield idle
        finally:
            idle.stop()

    def _pipelined(self, peer: Peer, settings: Mapping[str, str], messages: int) -> float:
        with self._topic(peer, settings) as topic:
            prepared = pipelined.requests(topic, int(messages * BATCHES_PER_MESSAGE), idempotent=False)
            return pipelined.messages_per_second(peer.port, topic, prepared)

    def _awake(self, peer: Peer) -> float:
        with peer.awake():
            return self.produced(peer, {}, self._messages)

    def _topic(self, peer: Peer, settings: Mapping[str, str]) -> AbstractContextManager[str]:
        return topics.temporary(peer.address, f"bench-pair-{next(self._serial)}", settings=settings)
