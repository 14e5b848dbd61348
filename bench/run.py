"""One run of the bench: what is measured, in which order, on which brokers.

Made and run by __main__. Never more than one broker is awake at a time (peers.py says how). Measurements in rounds are
`Workload`s, which prepare (with a warm-up) and measure. In fresh mode both brokers are restarted for each round, and
every workload prepares and measures on them; in warm mode one pair of brokers serves all rounds, after a longer
warm-up. A section that fails or lacks something is reported in one line and skipped; the rest of the table is still
made.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException

from bench import disk, load, racks, startup
from bench.cluster import Clusters
from bench.connections import Connections
from bench.delayed.section import Delays
from bench.delivery import Delivery
from bench.failover import VICTIMS, Failover
from bench.figures import Samples
from bench.java_producer import JavaProducer
from bench.lag import LagWatch
from bench.latency import Latency
from bench.neighbour import Neighbours
from bench.peers import KafkaRecipe, Peer, PeerMissing, Recipe
from bench.processes import Children
from bench.profiles import Profiles
from bench.rebalance import PROTOCOLS, Rebalance
from bench.sizes import Sizes
from bench.startup import in_turn
from bench.tagged.section import Views
from bench.throughput import Throughput

IN_ROUNDS = ("throughput", "latency", "neighbour", "delivery", "profiles", "connections", "idle", "clients")
ALONE = ("disk", "delays", "views")  # without Apache Kafka
SECTIONS = (
    *("disk", "startup", *IN_ROUNDS, "rebalance", "partitions", "cluster", "failover", "racks"),
    *("delays", "views"),
)
FAILURES = (PeerMissing, RuntimeError, OSError, KafkaException)
DISCARD_SECONDS = 0.5  # a broker whose data is deleted anyway need not stop cleanly


@dataclass(frozen=True)
class Workload:
    """A measurement in rounds. Both methods get the brokers, started and suspended."""

    name: str
    prepare: Callable[[Sequence[Peer]], None]
    measure: Callable[[Sequence[Peer]], None]


class Bench:
    def __init__(self, children: Children, folder: Path, sizes: Sizes, rounds: int, warm: bool) -> None:
        self.samples, self.remarks = Samples(), list[str]()
        self.versions: dict[str, str] = {}  # of peers that only one section has
        self._children, self._folder, self._sizes, self._rounds = children, folder, sizes, rounds
        self._warm = warm
        self._java: JavaProducer | None = None
        self._lag, self._crowd_lag = LagWatch(), LagWatch()

    def run(self, wanted: Sequence[str], recipes: Sequence[Recipe]) -> list[str]:
        """Measure the wanted sections on every available peer; returns the names of these peers."""
        if set(wanted) <= set(ALONE):
            recipes = [recipe for recipe in recipes if not isinstance(recipe, KafkaRecipe)]
        tried = {recipe: peer for recipe in recipes if (peer := self._trial(recipe))}
        recipes = list(tried)
        jars = [recipe.jars for recipe in recipes if isinstance(recipe, KafkaRecipe)]
        self._java = JavaProducer(self._children, jars[0]) if jars else None
        generator = self._generator()
        if "disk" in wanted:
            self._section("disk", self._disk)
        if "startup" in wanted:
            self._section("startup", lambda: startup.empty(list(tried.values()), self._rounds, self.samples))
        if "failover" in wanted:
            self._failover()
        if generator is not None:
            workloads = [self._workload(name, generator) for name in IN_ROUNDS if name in wanted]
            self._in_rounds(workloads, recipes)
            if "rebalance" in wanted:
                self._section("rebalance", lambda: self._rebalance(recipes))
            if "cluster" in wanted:
                clusters = Clusters(self._children, self._folder, generator, self.samples, self._sizes.cluster_messages)
                for number in range(self._rounds):
                    measure = functools.partial(clusters.round, number)
                    self._section(f"clusters, round {number + 1} of {self._rounds}", measure)
            if "racks" in wanted:
                singles = self._sizes.rack_messages
                self._section("racks", lambda: racks.measure(self._children, self._folder, self.samples, singles))
            if "partitions" in wanted:
                for recipe in recipes:
                    self._section(f"partitions, {recipe.name}", functools.partial(self._partitions, recipe, generator))
            self._alone(wanted, generator)
        return [recipe.name for recipe in recipes]

    # --- in rounds ---------------------------------------------------------------------------------------------------

    def _workload(self, name: str, generator: load.Generator) -> Workload:
        sizes, warm = self._sizes, self._warm
        if name == "throughput":
            work = Throughput(generator, self.samples, self._lag, sizes.work())
            warm_up = sizes.thorough_warm_up() if warm else sizes.short_warm_up()
            return Workload(name, lambda peers: work.prepare(peers, warm_up), work.round)
        if name == "latency":
            single = Latency(self._children, generator, self.samples, self._lag, self._folder)
            singles = sizes.single_messages if warm else sizes.warm_single_messages
            return Workload(
                name,
                lambda peers: single.prepare(peers, singles),
                lambda turn: single.round(turn, sizes.single_messages, sizes.single_goes),
            )
        if name == "neighbour":
            neighbours = Neighbours(generator, self.samples)
            return Workload(name, neighbours.prepare, neighbours.round)
        if name == "delivery":
            delivery = Delivery(generator, self._java, self.samples, sizes.scale, sizes.pairs)
            return Workload(name, lambda peers: delivery.prepare(peers, sizes.warm_messages), delivery.round)
        if name == "profiles":
            profiles = Profiles(self.samples, sizes.profile_messages, sizes.easy_messages)
            return Workload(name, profiles.prepare, profiles.round)
        many = Connections(self._children, self.samples, self._crowd_lag)
        if name == "connections":
            return Workload(name, many.prepare_held, lambda turn: many.held_open(turn, sizes.held))
        if name == "idle":
            return Workload(name, many.prepare_idle, lambda turn: many.waiting(turn, sizes.idle, sizes.idle_seconds))
        return Workload(
            name,
            lambda peers: many.prepare_active(peers, sizes.many),
            lambda turn: many.working(turn, sizes.many, sizes.active_seconds),
        )

    def _in_rounds(self, workloads: Sequence[Workload], recipes: Sequence[Recipe]) -> None:
        if not workloads:
            return
        if self._warm:
            self._section("warm brokers", lambda: self._warm_rounds(workloads, recipes))
        else:
            for number in range(self._rounds):
                measure = functools.partial(self._fresh_round, number, workloads, recipes)
                self._section(f"fresh brokers, round {number + 1} of {self._rounds}", measure)
        self._lag.add_to(self.samples, "lag")
        self._crowd_lag.add_to(self.samples, "crowd")

    def _fresh_round(self, number: int, workloads: Sequence[Workload], recipes: Sequence[Recipe]) -> None:
        with self._asleep(recipes, f"fresh-{number}") as peers:
            turn = in_turn(peers, number)
            for workload in workloads:
                name = f"{workload.name}, round {number + 1} of {self._rounds}"
                self._section(name, functools.partial(_prepare_and_measure, workload, turn))

    def _warm_rounds(self, workloads: Sequence[Workload], recipes: Sequence[Recipe]) -> None:
        with self._asleep(recipes, "warm") as peers:
            for workload in workloads:
                self._section(f"{workload.name}, warm-up", functools.partial(workload.prepare, peers))
                for number in range(self._rounds):
                    measure = functools.partial(workload.measure, in_turn(peers, number))
                    self._section(f"{workload.name}, round {number + 1} of {self._rounds}", measure)

    # --- once --------------------------------------------------------------------------------------------------------

    def _disk(self) -> None:
        for _ in range(self._rounds):
            disk.measure(self._folder, self._sizes.file_bytes, self.samples)

    def _rebalance(self, recipes: Sequence[Recipe]) -> None:
        rebalance = Rebalance(self._children, self.samples)
        with self._asleep(recipes, "rebalance") as peers:
            for peer, protocol in itertools.product(peers, PROTOCOLS):
                one_more = functools.partial(rebalance.one_more, peer, self._sizes.members, protocol)
                self._section(f"rebalance, {protocol} protocol, {peer.name}", one_more)

    def _failover(self) -> None:
        failover = Failover(self._children, self._folder, self.samples)
        for partitions, victim in itertools.product(self._sizes.failover, VICTIMS):
            measure = functools.partial(failover.measure, partitions, victim)
            self._section(f"failover, {partitions:,} partitions, the {victim} dies", measure)

    def _alone(self, wanted: Sequence[str], generator: load.Generator) -> None:
        """The sections on what Apache Kafka does not have."""
        where = (self._children, self._folder, generator, self.samples)
        if "delays" in wanted:
            delays = Delays(*where, self._sizes.delays, self._remark)
            for name, measure in delays.parts():
                self._section(name, measure)
            self.versions |= delays.versions
        if "views" in wanted:
            for name, measure in Views(*where, self._sizes.views).parts():
                self._section(name, measure)

    def _partitions(self, recipe: Recipe, generator: load.Generator) -> None:
        peer = self._peer(recipe, "many")
        try:
            startup.full([peer], self._sizes.partitions, generator, self.samples)
        finally:
            peer.stop(DISCARD_SECONDS)
            shutil.rmtree(self._folder / "many", ignore_errors=True)

    # --- brokers and failures ----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _asleep(self, recipes: Sequence[Recipe], purpose: str) -> Iterator[list[Peer]]:
        """New brokers, started and suspended; removed with their data afterwards."""
        peers = [self._peer(recipe, purpose) for recipe in recipes]
        try:
            for peer in peers:
                peer.format()
                peer.start()
                peer.sleep()
            yield peers
        finally:
            for peer in peers:
                peer.stop(DISCARD_SECONDS)
            shutil.rmtree(self._folder / purpose, ignore_errors=True)

    def _peer(self, recipe: Recipe, purpose: str) -> Peer:
        return Peer(recipe, self._children, self._folder / purpose / recipe.name.replace(" ", "-"))

    def _trial(self, recipe: Recipe) -> Peer | None:
        """Start and stop this peer once; if that fails, it is reported and skipped in all sections."""
        peer = self._peer(recipe, "start")
        try:
            recipe.prepare(self._children)
            peer.format()
            peer.start()
            peer.stop()
        except PeerMissing as missing:
            self._remark(f"{recipe.name} skipped: {missing}")
            return None
        return peer

    def _generator(self) -> load.Generator | None:
        try:
            return load.build(self._children)
        except load.GeneratorMissing as missing:
            self._remark(f"everything but disk and start-up skipped: {missing}")
            return None

    def _section(self, name: str, measure: Callable[[], None]) -> None:
        """Measure; a failure skips this section only."""
        print(f"{time.strftime('%H:%M:%S')} {name}", file=sys.stderr, flush=True)
        try:
            measure()
        except FAILURES as error:
            self._remark(f"{name}: not measured: {error}")

    def _remark(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)
        self.remarks.append(text)


def _prepare_and_measure(workload: Workload, turn: Sequence[Peer]) -> None:
    workload.prepare(turn)
    workload.measure(turn)
