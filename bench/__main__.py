"""`make bench`: measures headrace and Apache Kafka side by side in one run and prints the table.

Owns the order of things: what is measured, how often, on which sizes, and what is written where. Never more than one
broker runs at a time (peers.py says how). Whatever fails or is missing is named in one line and left out; the rest of
the table is still made. Leaving, by whatever way, ends every child process and removes the data folders.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import importlib.metadata
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException

from bench import disk, load, machine, report, startup
from bench.connections import Connections
from bench.figures import Samples
from bench.lag import LagWatch
from bench.latency import Latency
from bench.peers import CACHE, KAFKA_VERSION, HeadraceRecipe, KafkaRecipe, Peer, PeerMissing, Recipe
from bench.processes import Children
from bench.startup import in_turn
from bench.throughput import Throughput, kinds

RESULTS = Path(__file__).parent / "results"
SECTIONS = ("startup", "throughput", "latency", "connections", "idle", "clients", "partitions", "disk")


@dataclass(frozen=True)
class Sizes:
    """How much of everything; the table's titles name them."""

    scale: float = 1.0
    warm_rounds: int = 2
    single_messages: int = 5000
    held: int = 2000
    idle: int = 1000
    idle_seconds: float = 10.0
    many: int = 500
    active_seconds: float = 4.0
    partitions: int = 10_000
    file_bytes: int = 512 * 1024 * 1024
    full: bool = True


QUICK = Sizes(0.2, 1, 1000, 200, 100, 3.0, 50, 2.0, 1000, 128 * 1024 * 1024, full=False)


class Bench:
    """One run."""

    def __init__(self, children: Children, folder: Path, sizes: Sizes, rounds: int, fresh: bool) -> None:
        self.samples, self.remarks = Samples(), list[str]()
        self._children, self._folder, self._sizes, self._rounds = children, folder, sizes, rounds
        self._fresh = fresh
        self._lag, self._crowd_lag = LagWatch(), LagWatch()

    def run(self, wanted: Sequence[str], recipes: Sequence[Recipe]) -> dict[str, str]:
        """Measure what is wanted on every peer that there is; gives back the peers that took part."""
        tried = {recipe: peer for recipe in recipes if (peer := self._trial(recipe))}
        recipes = list(tried)
        generator = self._generator()
        if "disk" in wanted:
            self._section("disk", self._disk)
        if "startup" in wanted:
            self._section("startup", lambda: startup.empty(list(tried.values()), self._rounds, self.samples))
        if generator is not None:
            if self._fresh:
                self._fresh_rounds(wanted, recipes, generator)
                wanted = [section for section in wanted if section not in ("throughput", "latency")]
            self._running(wanted, recipes, generator)
            if "partitions" in wanted:
                for recipe in recipes:
                    self._section(f"partitions, {recipe.name}", functools.partial(self._partitions, recipe, generator))
        return {recipe.name: KAFKA_VERSION if recipe.name == report.THEIRS else _own_version() for recipe in recipes}

    def _running(self, wanted: Sequence[str], recipes: Sequence[Recipe], generator: load.Generator) -> None:
        """The measurements that share one pair of running brokers."""
        if not {"throughput", "latency", "connections", "idle", "clients"} & set(wanted):
            return
        peers = self._asleep(recipes, "run")
        many = Connections(self._children, self.samples, self._crowd_lag)
        sizes = self._sizes
        if "throughput" in wanted:
            self._section("throughput", lambda: self._throughput(peers, generator))
        if "latency" in wanted:
            self._section("latency", lambda: self._latency(peers, generator))
        if {"throughput", "latency"} & set(wanted):
            self._lag.add_to(self.samples, "lag")
        if "connections" in wanted:
            self._section("connections", lambda: many.held_open(peers, sizes.held))
        if "idle" in wanted:
            self._section("idle consumers", lambda: many.prepare_idle(peers))
            self._each_round(peers, "idle consumers", lambda turn: many.waiting(turn, sizes.idle, sizes.idle_seconds))
        if "clients" in wanted:
            self._section("active clients", lambda: many.prepare_active(peers, sizes.many))
            self._each_round(peers, "active clients", lambda turn: many.working(turn, sizes.many, sizes.active_seconds))
            self._crowd_lag.add_to(self.samples, "crowd")
        for peer in peers:
            peer.stop()

    def _fresh_rounds(self, wanted: Sequence[str], recipes: Sequence[Recipe], generator: load.Generator) -> None:
        """Throughput and latency with brokers started anew for each round and nothing run before."""
        for number in range(self._rounds):
            measure = functools.partial(self._fresh_round, number, wanted, recipes, generator)
            self._section(f"fresh brokers, round {number + 1} of {self._rounds}", measure)
        self._lag.add_to(self.samples, "lag")

    def _fresh_round(
        self, number: int, wanted: Sequence[str], recipes: Sequence[Recipe], generator: load.Generator
    ) -> None:
        peers = in_turn(self._asleep(recipes, f"fresh-{number}"), number)
        if "throughput" in wanted:
            work = kinds(self._sizes.scale)
            throughput = Throughput(generator, self.samples, self._lag)
            throughput.warm_up(peers, work, 0)
            throughput.round(peers, work)
            throughput.memory(peers)
        if "latency" in wanted:
            latency = Latency(generator, self.samples, self._lag)
            latency.warm_up(peers, 0)
            latency.round(peers, self._sizes.single_messages)
        for peer in peers:
            peer.stop()
        shutil.rmtree(self._folder / f"fresh-{number}", ignore_errors=True)

    def _throughput(self, peers: Sequence[Peer], generator: load.Generator) -> None:
        work = kinds(self._sizes.scale)
        throughput = Throughput(generator, self.samples, self._lag)
        throughput.warm_up(peers, work, self._sizes.warm_rounds)
        self._each_round(peers, "throughput", lambda turn: throughput.round(turn, work))
        throughput.memory(peers)

    def _latency(self, peers: Sequence[Peer], generator: load.Generator) -> None:
        latency = Latency(generator, self.samples, self._lag)
        latency.warm_up(peers, self._sizes.single_messages)
        self._each_round(peers, "latency", lambda turn: latency.round(turn, self._sizes.single_messages))

    def _partitions(self, recipe: Recipe, generator: load.Generator) -> None:
        startup.full([self._peer(recipe, "many")], self._sizes.partitions, generator, self.samples)
        shutil.rmtree(self._folder / "many", ignore_errors=True)

    def _disk(self) -> None:
        for _ in range(self._rounds):
            disk.measure(self._folder, self._sizes.file_bytes, self.samples)

    def _each_round(self, peers: Sequence[Peer], name: str, measure: Callable[[list[Peer]], None]) -> None:
        for number in range(self._rounds):
            turn = in_turn(peers, number)
            self._section(f"{name}, round {number + 1} of {self._rounds}", functools.partial(measure, turn))

    def _section(self, name: str, measure: Callable[[], None]) -> None:
        """Measure; a failure costs this section, never the table."""
        print(f"{time.strftime('%H:%M:%S')} {name}", file=sys.stderr, flush=True)
        try:
            measure()
        except (PeerMissing, RuntimeError, OSError, KafkaException) as error:
            self._remark(f"{name}: not measured: {error}")

    def _asleep(self, recipes: Sequence[Recipe], purpose: str) -> list[Peer]:
        """New brokers, started and put to sleep."""
        peers = [self._peer(recipe, purpose) for recipe in recipes]
        for peer in peers:
            peer.format()
            peer.start()
            peer.sleep()
        return peers

    def _peer(self, recipe: Recipe, purpose: str) -> Peer:
        return Peer(recipe, self._children, self._folder / purpose / recipe.name.replace(" ", "-"))

    def _trial(self, recipe: Recipe) -> Peer | None:
        """Start and stop this peer once; one that cannot is named and left out of everything."""
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
            self._remark(f"throughput, latency and partitions skipped: {missing}")
            return None

    def _remark(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)
        self.remarks.append(text)


def main() -> int:
    options = _options()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    CACHE.mkdir(exist_ok=True)
    sizes = QUICK if options.quick else Sizes()
    when, load_before = time.strftime("%Y-%m-%d %H:%M"), machine.load_average()
    with _data_folder(options.folder) as folder, Children() as children:
        bench = Bench(children, folder, sizes, options.rounds, options.fresh)
        took_part = bench.run(options.only, (HeadraceRecipe(), KafkaRecipe()))
    if options.quick:
        bench.remarks.append("A quick run: small sizes, so the goals on headrace's own figures are not judged.")
    if options.fresh:
        bench.remarks.append("Throughput and latency are those of brokers started anew for each round, not warmed up.")
    if load_before > 0.5:
        bench.remarks.append(f"The machine was busy before the run (load average {load_before:.1f}).")
    about = report.Circumstances(
        machine.describe(), when, took_part, options.rounds, machine.cores(), dataclasses.asdict(sizes), bench.remarks
    )
    _write(bench.samples, about, options)
    print(report.as_text(bench.samples, about))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("bench", description="headrace beside Apache Kafka, in one run")
    parser.add_argument("--only", type=_sections, default=SECTIONS, help=f"a comma list of {', '.join(SECTIONS)}")
    parser.add_argument("--rounds", type=int, help="rounds per measurement (default 5, quick 1)")
    parser.add_argument("--quick", action="store_true", help="one round on small sizes, under three minutes")
    parser.add_argument(
        "--fresh", action="store_true", help="start both brokers anew for each round, without warming up"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value of every round there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there")
    parser.add_argument("--folder", type=Path, default=CACHE, help="where data goes while it runs: the disk to measure")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 5)
    return options


def _sections(text: str) -> tuple[str, ...]:
    wanted = tuple(text.split(","))
    unknown = set(wanted) - set(SECTIONS)
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    return wanted


def _write(samples: Samples, about: report.Circumstances, options: argparse.Namespace) -> None:
    RESULTS.mkdir(exist_ok=True)
    stem = RESULTS / about.when.replace(" ", "-").replace(":", "")
    data, table = json.dumps(report.as_data(samples, about), indent=1), report.as_markdown(samples, about)
    for path, text in ((stem.with_suffix(".json"), data), (stem.with_suffix(".md"), table)):
        path.write_text(text)
    for path, text in ((options.json, data), (options.markdown, table)):
        if path:
            path.write_text(text)


@contextlib.contextmanager
def _data_folder(within: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="run-", dir=within, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _own_version() -> str:
    return importlib.metadata.version("headrace")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    print("interrupted; every process it started has ended", file=sys.stderr)
    os._exit(130)
