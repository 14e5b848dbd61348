"""The sizes of one run of the bench: messages, rounds, clients. The table's titles name some of them.

Pure data, made by __main__ and read by run.py. `fresh` and `warm` differ only in what is done before measuring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bench.delayed.sizes import QUICK_DELAYS, DelaySizes
from bench.tagged.sizes import QUICK_VIEWS, ViewSizes
from bench.throughput import Kind, kinds

THOROUGH_ROUNDS = 2


@dataclass(frozen=True)
class Sizes:
    scale: float = 1.0
    warm_messages: int = 200_000  # of each kind of work, on a broker just started
    warm_single_messages: int = 3000
    single_messages: int = 4000
    single_goes: int = 5  # of so many messages, in every round
    held: int = 2000
    idle: int = 1000
    idle_seconds: float = 5.0
    many: int = 500
    active_seconds: float = 3.0
    pairs: int = 3
    profile_messages: int = 600_000
    easy_messages: int = 3000
    members: int = 100
    partitions: int = 10_000
    cluster_messages: int = 2_000_000
    failover: tuple[int, ...] = (3, 100, 1000, 5000)  # partitions
    rack_messages: int = 500
    file_bytes: int = 512 * 1024 * 1024
    delays: DelaySizes = field(default_factory=DelaySizes)
    views: ViewSizes = field(default_factory=ViewSizes)
    full: bool = True

    def work(self) -> tuple[Kind, ...]:
        return kinds(self.scale)

    def short_warm_up(self) -> Sequence[Kind]:
        """A fixed number of messages: enough for imports, first connections and the JVM's first compiler. Data to be
        read is read once to its end, so that its buffers have been used before."""
        few = self.warm_messages
        return [kind if kind.reads else replace(kind, messages=min(few, kind.messages)) for kind in self.work()]

    def thorough_warm_up(self) -> Sequence[Kind]:
        """Whole rounds: enough for the JVM's last compiler."""
        return self.work() * THOROUGH_ROUNDS


QUICK = Sizes(
    scale=0.2,
    warm_messages=50_000,
    warm_single_messages=200,
    single_messages=1000,
    single_goes=1,
    held=200,
    idle=100,
    idle_seconds=3.0,
    many=50,
    active_seconds=2.0,
    pairs=2,
    profile_messages=30_000,
    easy_messages=1000,
    members=10,
    partitions=1000,
    cluster_messages=300_000,
    failover=(3, 100),
    rack_messages=100,
    file_bytes=128 * 1024 * 1024,
    delays=QUICK_DELAYS,
    views=QUICK_VIEWS,
    full=False,
)
