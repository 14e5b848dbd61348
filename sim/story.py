"""One seed's story: a cluster starts, clients run, faults are injected and removed, and everything is checked.

The verdict has three parts: the history of the clients (sim/history), the states in ZooKeeper and the replicas' logs
(sim/audit.py), and whether the cluster recovered in time. The seed alone decides the story: the number of brokers, the
flush mode, what clients send when, and every fault. Its `digest` covers everything that clients saw, so two runs of one
seed can be compared. Called by `python -m sim` and by tests/sim.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, TextIO

import msgspec

from sim.audit import StateAudit, compare_replicas
from sim.clients.admin import Admin
from sim.clients.member import Member
from sim.clients.orders import HOUR_MS
from sim.clients.pipe import Pipe
from sim.clients.producer import OneShotProducer, Producer
from sim.clients.reader import Partition, Reader, read_everything
from sim.cluster import DATA, SimCluster
from sim.delay_story import DELAY_TOPICS, FLEETING, DelayStory
from sim.delay_story import SETTINGS as DELAY_SETTINGS
from sim.faults import Faults, in_sync
from sim.history.event import READ_COMMITTED, READ_UNCOMMITTED
from sim.history.invariants import Limits
from sim.history.recorder import Recorder
from sim.history.verdict import Verdict, judge
from sim.loop import Overtime, SimClock, run

ORDERS, MADE = "orders", "made"
TOPICS = {ORDERS: 3, MADE: 2}
TROUBLE_S = 60.0
RECOVERY_S = 240.0
LIMITS = Limits(seen_within_s=RECOVERY_S, stable_within_s=RECOVERY_S, released_within_s=20)
UNTROUBLED = replace(
    LIMITS, late_within_s=6
)  # a reader takes turns between partitions, and waits half a second for each
DELAYS_IN = 0.2  # of the stories


@dataclass
class Outcome:
    seed: int
    brokers: int
    fsync: bool
    delays: bool = False
    verdict: Verdict | None = None
    problems: list[str] = field(default_factory=list)  # problems that the history does not show
    faults: dict[str, int] = field(default_factory=dict)
    deaths: list[str] = field(default_factory=list)  # brokers that stopped by themselves
    digest: str = ""
    elections: int = 0
    virtual_s: float = 0.0

    @property
    def passed(self) -> bool:
        return not self.problems and self.verdict is not None and not self.verdict.violations

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {'PASSED' if self.passed else 'FAILED'}, {self.brokers} brokers"]
        lines[0] += f"{', fsync' if self.fsync else ''}{', delays' if self.delays else ''}"
        lines[0] += f", {self.elections} elections, {self.virtual_s:.0f} s"
        lines.append("  faults: " + ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items())))
        lines += [f"  {problem}" for problem in self.problems]
        lines += [f"  stopped by itself: {death}" for death in self.deaths]
        if self.verdict is not None:
            lines += [f"  {line}" for line in str(self.verdict).splitlines()]
        return "\n".join(lines)


@dataclass(frozen=True)
class Plot:
    """The parameters that a caller can choose; the seed decides the rest."""

    trouble_s: float = TROUBLE_S
    faults: bool = True
    delays: bool | None = None  # delayed messages; None: as the seed decides


def tell(seed: int, plot: Plot | None = None, sink: TextIO | None = None) -> Outcome:
    """The whole story of a seed; `sink` gets the history."""
    chance = random.Random(f"story {seed}")
    outcome = Outcome(seed, brokers=5 if chance.random() < 0.2 else 3, fsync=chance.random() < 0.3)
    drawn = chance.random() < DELAYS_IN
    outcome.delays = drawn if plot is None or plot.delays is None else plot.delays
    story = _Story(outcome, plot or Plot(), sink)
    try:
        run(story.play(), seed, limit_s=7200)
    except Overtime as error:
        outcome.problems.append(str(error))
    story.close_the_books()
    return outcome


class _Story:
    def __init__(self, outcome: Outcome, plot: Plot, sink: TextIO | None) -> None:
        self._outcome = outcome
        self._plot = plot
        self._audit = StateAudit()
        self._recorder = Recorder(self._now_ns, sink)
        self._stop = asyncio.Event()
        self._healed = asyncio.Event()
        self._topics = TOPICS | (DELAY_TOPICS if outcome.delays else {})
        self._delays: DelayStory | None = None
        self._all_out = asyncio.Event()
        self._reading: list[asyncio.Task[None]] = []  # of delayed messages, until all are out

    def _now_ns(self) -> int:
        return int(asyncio.get_running_loop().time() * 1e9)

    async def play(self) -> None:
        outcome = self._outcome
        settings = {"headrace.flush": "fsync"} if outcome.fsync else {}
        settings |= DELAY_SETTINGS if outcome.delays else {}
        cluster = self._cluster = SimCluster(outcome.seed, outcome.brokers, settings)
        cluster.ensemble.on_write(self._audit)
        cluster.start()
        admin = cluster.caller("admin")
        for topic, partitions in TOPICS.items():
            await admin.create_topic(topic, partitions, {})
        if outcome.delays:
            later_ms = HOUR_MS if self._plot.faults else int(self._plot.trouble_s + 60) * 1000
            self._delays = DelayStory(cluster, self._recorder, outcome.seed, fsync=outcome.fsync, later_ms=later_ms)
            await self._delays.begin()
        readers, working = self._clients(cluster)
        faults = self._faults = Faults(
            cluster,
            outcome.seed,
            fsync=outcome.fsync,
            tell=self._fault,
            clock_set=self._clock_set,
            delays=outcome.delays,
        )
        trouble: asyncio.Task[None] | None = None
        if self._plot.faults:
            trouble = asyncio.create_task(faults.run(self._plot.trouble_s))
        await asyncio.sleep(self._plot.trouble_s)
        self._healed.set()
        await faults.heal()
        self._fault("heal")
        self._recorder.happened("faults", "heal")
        if trouble is not None and not await self._within(trouble, "the last fault ends"):
            return
        await faults.heal()
        await self._settle(working, readers)
        outcome.virtual_s = asyncio.get_running_loop().time()

    async def _in_sync(self, after: str) -> bool:
        """Whether all replicas are, in time."""
        cluster = self._cluster
        if await cluster.until(lambda: in_sync(cluster), RECOVERY_S):
            return True
        states = "; ".join(str(state) for state in cluster.states() if len(state.isr) < len(state.replicas))
        self._outcome.problems.append(f"not in sync {RECOVERY_S:g} s after {after}: {states}")
        return False

    async def _settle(self, working: list[asyncio.Task[None]], readers: list[Reader]) -> None:
        cluster = self._cluster
        if not await self._in_sync("the last fault"):
            return
        await asyncio.sleep(min(5.0, self._plot.trouble_s / 5))  # clients run on the healed cluster for a while
        self._stop.set()
        for task in working:
            if not await self._within(task, "a client ends"):
                return
        if self._delays is not None and not await self._release_all(self._delays):
            return
        for reader in readers:
            if not await self._within(asyncio.create_task(reader.catch_up()), "a reader reaches the end"):
                return
        places = [(topic, index) for topic, count in self._topics.items() for index in range(count)]
        final = read_everything(cluster.caller("final"), self._recorder, places)
        if not await self._within(asyncio.create_task(final), "the final read ends"):
            return
        await asyncio.sleep(3)
        disks = {machine.id: machine.disk for machine in cluster.machines.values()}
        replicas = {topic: cluster.replicas(topic) for topic in self._topics}
        self._outcome.problems += compare_replicas(disks, DATA, replicas, self._recorder, trimmed=(FLEETING,))

    async def _release_all(self, delays: DelayStory) -> bool:
        """Until no delayed message is pending any more; False if that takes too long."""
        await delays.keep()
        if self._plot.faults:
            await delays.pass_an_hour()
            self._fault("an hour has passed")
            await asyncio.sleep(1)
            if not await self._in_sync("the hour"):
                return False
        await delays.let_all_come()
        self._all_out.set()
        for task in self._reading:
            if not await self._within(task, "a reader ends"):
                return False
        return True

    async def _within(self, task: asyncio.Task[Any], what: str) -> bool:
        """Whether it ended in time; its error, if it has one, is raised."""
        await asyncio.wait([task], timeout=RECOVERY_S)
        if not task.done():
            stack = task.get_stack(limit=1)
            place = f"{stack[-1].f_code.co_filename}:{stack[-1].f_lineno}" if stack else ""
            self._outcome.problems.append(f"it took more than {RECOVERY_S:g} s until {what} ({place})")
            return False
        task.result()
        return True

    def _clients(self, cluster: SimCluster) -> tuple[list[Reader], list[asyncio.Task[None]]]:
        recorder, clock = self._recorder, SimClock()
        orders: list[Partition] = [(ORDERS, index) for index in range(TOPICS[ORDERS])]
        made: list[Partition] = [(MADE, index) for index in range(TOPICS[MADE])]
        readers = [
            Reader(cluster.caller("reader-1"), recorder, "reader-1", orders, READ_UNCOMMITTED),
            Reader(cluster.caller("reader-2"), recorder, "reader-2", made, READ_COMMITTED),
        ]
        parts: list[Coroutine[Any, Any, None]] = [reader.run(self._stop) for reader in readers]
        for name in ("producer-1", "producer-2"):
            parts.append(Producer(cluster.caller(name), recorder, clock, name, ORDERS, 3).run(self._stop))
        once = OneShotProducer(cluster.caller("once"), recorder, clock, "once", ORDERS, 3)
        parts.append(once.run(self._stop))
        for name in ("member-1", "member-2"):
            parts.append(Member(cluster.caller(name), recorder, name, "shop", orders).run(self._stop))
        parts.append(Admin(cluster.caller("admin-2"), self._topics, len(cluster.machines)).run(self._healed))
        parts.append(Pipe(cluster.caller("pipe"), recorder, clock, "pipe", orders, made).run(self._stop))
        if self._delays is not None:
            more, delayed = self._delays.clients(self._stop)
            self._reading = [asyncio.create_task(reader.run(self._all_out)) for reader in more]
            parts += delayed
            readers += more
        return readers, [asyncio.create_task(part) for part in parts]

    def _fault(self, what: str) -> None:
        self._recorder.happened("faults", "move", details={"fault": what})

    def _clock_set(self, off_ms: int) -> None:
        self._recorder.happened("faults", "clock", details={"off_ms": off_ms})

    def close_the_books(self) -> None:
        outcome = self._outcome
        outcome.problems += self._audit.violations
        outcome.elections = self._audit.elections
        outcome.faults = dict(self._faults.counts) if hasattr(self, "_faults") else {}
        for machine in self._cluster.machines.values():
            outcome.deaths += [f"{machine.name}: {error!r}" for error in machine.deaths]
        outcome.verdict = judge(self._recorder.events, LIMITS if self._plot.faults else UNTROUBLED)
        outcome.digest = hashlib.sha256(msgspec.json.encode(self._recorder.events)).hexdigest()
        self._cluster.bury()
