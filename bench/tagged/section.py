"""The section "views": bytes and CPU of a view beside reading everything, and what views cost others.

Called by run.py, once a run, on one headrace broker. For each layout of tags a topic is filled, and read by the same
client in turns: whole, and through a view that keeps one record in a hundred. The client counts the bytes that it
received; the broker's CPU is that of its process. The first read of the view is told apart from the later ones, as the
broker may learn on the first what makes the later ones cheap.

Others: produce to a plain topic of a broker with a million pending messages and a dozen views whose readers wait for
new records, in pairs with a broker that has nothing to do; and for comparison the same with readers of the topics
themselves, since on a small machine the clients take CPU from the broker and the load generator too. Last, one record
every 5 ms to a topic that is flushed for each, while a consumer reads a view from start to end over and over.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import topics
from bench.delayed.client import Client
from bench.delayed.servers import DELAYS, TOPIC
from bench.delayed.work import Batch
from bench.figures import MIB, Samples, percentile
from bench.load import Generator
from bench.neighbour import paced_seconds
from bench.peers import HeadraceRecipe, Peer
from bench.processes import Children
from bench.startup import in_turn
from bench.tagged.layout import GOLD, LAYOUTS, Layout
from bench.tagged.sizes import ViewSizes
from bench.upkeep import Upkeep

MODULE = "bench.tagged.client"
TAGS = {"headrace.tags.enable": "true"}
FSYNC_TOPIC, FSYNC = "bench-fsync", {"headrace.flush": "fsync"}
FAR_MS = 3_600_000
PATIENCE_S = 300.0
MARGIN_S = 30.0
BUSY_TOPICS, VIEWS_OF_EACH = 4, 3
BUSY_LEAD_SECONDS = 2.0
BUSY_SECONDS = 60.0  # at most: they are ended after the run beside them


class Views:
    def __init__(
        self, children: Children, folder: Path, generator: Generator, samples: Samples, sizes: ViewSizes
    ) -> None:
        self._children, self._folder, self._samples, self._sizes = children, folder, samples, sizes
        self._generator = generator

    def parts(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """The parts of the section with their names: if one fails, the next is still measured."""
        yield "views, bytes and CPU", lambda: self._on_a_broker("views", self._bytes_and_cpu)
        yield "views, plain topics beside them", lambda: self._on_a_broker("views-beside", self._beside)
        yield "views, fsync beside them", lambda: self._on_a_broker("views-fsync", self._fsync)

    def _on_a_broker(self, name: str, measure: Callable[[Peer], None]) -> None:
        peer = Peer(HeadraceRecipe(), self._children, self._folder / name)
        peer.format()
        peer.start()
        try:
            with peer.blamed():
                measure(peer)
        finally:
            peer.stop()

    # --- bytes and CPU -----------------------------------------------------------------------------------------------

    def _bytes_and_cpu(self, peer: Peer) -> None:
        for layout in LAYOUTS:
            base, view, matching = self._filled(peer, layout)
            self._read(peer, base, self._sizes.records)  # unmeasured: first connections and imports
            for number in range(self._sizes.reads):
                for name in in_turn((base, view), number):
                    count = self._sizes.records if name == base else matching
                    self._add_read(layout, "all" if name == base else "view", number, *self._read(peer, name, count))
            whole = self._samples.median(f"views.{layout}.all.mb", peer.name)
            moved = self._samples.median(f"views.{layout}.view.mb", peer.name)
            assert whole is not None
            assert moved is not None
            self._samples.add(f"views.{layout}.bytes", peer.name, 100 * moved / whole)
            self._add_share(layout, peer.name)

    def _add_read(self, layout: Layout, what: str, number: int, received: float, cpu_seconds: float) -> None:
        name = HeadraceRecipe.name
        self._samples.add(f"views.{layout}.{what}.mb", name, received / MIB)
        first = what == "view" and number == 0
        self._samples.add(f"views.{layout}.{'first' if first else what}.cpu", name, cpu_seconds)

    def _add_share(self, layout: Layout, name: str) -> None:
        whole, later = (self._samples.median(f"views.{layout}.{what}.cpu", name) for what in ("all", "view"))
        if whole and later is not None:
            self._samples.add(f"views.{layout}.cpu", name, 100 * later / whole)

    def _filled(self, peer: Peer, layout: Layout) -> tuple[str, str, int]:
        """A topic of this layout, a view of it, and how many records the view keeps."""
        base, view = f"bench-tags-{layout}", f"bench-view-{layout}"
        topics.create(peer.address, base, settings=TAGS)
        told = self._ask(PATIENCE_S, "load", peer.address, base, self._sizes.records, layout)
        topics.create_view(peer.address, view, base, GOLD.decode())
        return base, view, int(told["matching"])

    def _read(self, peer: Peer, name: str, count: int) -> tuple[float, float]:
        """The bytes that the client received, and the broker's CPU seconds."""
        told, cpu_seconds = peer.charged(lambda: self._ask(PATIENCE_S, "read", peer.address, name, PATIENCE_S))
        if told["records"] != count:
            raise RuntimeError(f"{name} has {count:,} records, and {told['records']:,.0f} came")
        return told["bytes"], cpu_seconds

    # --- others ------------------------------------------------------------------------------------------------------

    def _beside(self, peer: Peer) -> None:
        bases = [f"bench-busy-{number}" for number in range(BUSY_TOPICS)]
        names = [f"{base}-view-{number}" for base in bases for number in range(VIEWS_OF_EACH)]
        for base in bases:
            topics.create(peer.address, base, settings=TAGS)
        for name in names:
            topics.create_view(peer.address, name, name.rpartition("-view-")[0], GOLD.decode())
        topics.create(peer.address, TOPIC, settings={DELAYS: "true"})
        client = Client(self._children, "bench.delayed.headrace_client", peer.address, TOPIC)
        far_ms = time.time_ns() // 1_000_000 + FAR_MS
        client.ask("load", Batch("pending", self._sizes.pending, far_ms), PATIENCE_S)
        upkeep = Upkeep(self._children, self._folder, self._generator, self._samples, self._sizes.produced)
        with upkeep.idle_broker() as idle:
            idle.sleep()
            peer.sleep()
            for key, read in (("views.kept", names), ("views.direct.kept", [*bases] * VIEWS_OF_EACH)):
                self._pairs_beside(upkeep, key, idle, peer, bases, read)
        peer.wake()

    def _pairs_beside(
        self, upkeep: Upkeep, key: str, idle: Peer, peer: Peer, bases: Sequence[str], read: Sequence[str]
    ) -> None:
        def alone() -> float:
            with idle.awake():
                return upkeep.produced(idle, {}, self._sizes.produced)

        def busy() -> float:
            with peer.awake(), self._traffic(peer, bases, read):
                return upkeep.produced(peer, {}, self._sizes.produced)

        upkeep.pairs(key, self._sizes.pairs, alone, busy)

    @contextmanager
    def _traffic(self, peer: Peer, bases: Sequence[str], read: Sequence[str]) -> Iterator[None]:
        """Producers and readers while the block runs."""
        bound = [",".join(bases), str(BUSY_SECONDS), str(self._sizes.busy_per_second)]
        readers = [list(read[at : at + VIEWS_OF_EACH]) for at in range(0, len(read), VIEWS_OF_EACH)]
        commands = [["trickle", peer.address, *bound]]
        commands += [["follow", peer.address, ",".join(one), str(BUSY_SECONDS)] for one in readers]
        with self._beside_it(commands):
            yield

    def _fsync(self, peer: Peer) -> None:
        base, view, _ = self._filled(peer, "random")
        topics.create(peer.address, FSYNC_TOPIC, settings=FSYNC)
        self._read(peer, base, self._sizes.records)
        scan = ["scan", peer.address, view, str(self._sizes.fsync_seconds + MARGIN_S)]
        self._flushed_p99(peer)
        for number in range(self._sizes.pairs):
            found: list[float] = []
            for commands in in_turn(([], [scan]), number):
                with self._beside_it(commands):
                    found.append(self._flushed_p99(peer))
            alone, beside = in_turn(found, number)
            self._samples.add("views.fsync.alone", peer.name, alone)
            self._samples.add("views.fsync.beside", peer.name, beside)
            self._samples.add("views.fsync.raised", peer.name, beside / alone)

    def _flushed_p99(self, peer: Peer) -> float:
        """Milliseconds, of one record every 5 ms, each flushed."""
        until = time.monotonic() + self._sizes.fsync_seconds
        return 1000 * percentile(paced_seconds(peer.port, lambda: time.monotonic() < until, FSYNC_TOPIC), 99)

    # --- clients -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _beside_it(self, commands: Sequence[Sequence[str]]) -> Iterator[None]:
        """Clients that run while the block does; one that ended by itself failed."""
        running: list[subprocess.Popen[bytes]] = []
        try:
            running += [self._children.start([sys.executable, "-m", MODULE, *command]) for command in commands]
            if running:
                time.sleep(BUSY_LEAD_SECONDS)
            yield
            if any(process.poll() is not None for process in running):
                raise RuntimeError("a client beside the measurement ended before it")
        finally:
            for process in running:
                self._children.stop(process, seconds=1.0)

    def _ask(self, seconds: float, verb: str, address: str, name: str, *rest: object) -> dict[str, float]:
        command = [sys.executable, "-m", MODULE, verb, address, name, *map(str, rest)]
        done = self._children.run(command, seconds=seconds + MARGIN_S)
        if done.code != 0:
            raise RuntimeError(f"{verb} {name}: {done.reason()}")
        told: dict[str, float] = json.loads(done.out.strip().splitlines()[-1])
        return told
