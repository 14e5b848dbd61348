"""The section "delays": delayed messages in headrace, and the same work with NATS JetStream and Redis.

Called by run.py, once a run, one system after the other; only one of them runs at a time. For each: load what is due in
an hour, restart with it, then load half a million that are due at the same moment, and then a steady stream of due
messages, both while the first lot is still pending and a consumer waits. Lateness is from the due time to the arrival
at that consumer. Every message is checked: a run in which one is missing, came twice or came early is no measurement.

What the feature costs those who do not use it is measured in alternating pairs, on headrace alone (upkeep.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import memory
from bench.delayed.client import Result
from bench.delayed.servers import HEADRACE, HeadraceServer, NatsServer, RedisServer, Server
from bench.delayed.sizes import DelaySizes
from bench.delayed.work import Batch, wrong
from bench.figures import MIB, Samples
from bench.load import Generator
from bench.peers import PeerMissing
from bench.processes import Children
from bench.upkeep import Upkeep

FAR_MS = 3_600_000
LEAD_SECONDS = 10.0  # beyond three times the time that loading should take
READ_SECONDS = 180.0
RESTART_SECONDS = 120.0
SETTLE_SECONDS = 2.0


class Delays:
    def __init__(
        self,
        children: Children,
        folder: Path,
        generator: Generator,
        samples: Samples,
        sizes: DelaySizes,
        remark: Callable[[str], None],
    ) -> None:
        self._children, self._folder, self._generator = children, folder, generator
        self._samples, self._sizes, self._remark = samples, sizes, remark
        self.versions: dict[str, str] = {}

    def parts(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """The parts of the section with their names: if one fails, the next is still measured."""
        yield f"delays, {HEADRACE}", self._headrace
        if self._sizes.headrace_only:
            return
        yield f"delays, {NatsServer.name}", lambda: self._peer(NatsServer)
        yield f"delays, {RedisServer.name}", lambda: self._peer(RedisServer)

    def _headrace(self) -> None:
        server = HeadraceServer(self._children, self._folder / "delays-headrace")
        self._measure(server, lambda: None if self._sizes.headrace_only else self._upkeep(server))

    def _upkeep(self, server: HeadraceServer) -> None:
        upkeep = Upkeep(self._children, self._folder, self._generator, self._samples, self._sizes.produced)
        upkeep.of_the_setting(server.peer, self._sizes.pairs)
        upkeep.of_others(server.peer, "delays.others", self._sizes.pairs)

    def _peer(self, kind: type[NatsServer] | type[RedisServer]) -> None:
        home = self._folder / ("delays-" + kind.name.replace(" ", "-"))
        try:
            server = kind(self._children, home)
        except PeerMissing as missing:
            self._remark(f"{kind.name} skipped: {missing}")
            return
        self.versions[server.name] = server.version()
        self._measure(server, lambda: None)

    def _measure(self, server: Server, beside: Callable[[], None]) -> None:
        """All parts on one system; `beside` runs while its messages are pending."""
        server.start()
        try:
            rate = self._load_pending(server)
            self._restart(server)
            beside()
            self._burst(server, rate)
            self._steady(server, rate)
        finally:
            server.stop()

    def _load_pending(self, server: Server) -> float:
        """The messages a second at which the system took them."""
        time.sleep(SETTLE_SECONDS)
        before = server.resident_bytes()
        memory.settle()
        batch = Batch("pending", self._sizes.pending, _now_ms() + FAR_MS)
        told = server.client.ask("load", batch, self._sizes.load_seconds)
        if told["loaded"] < batch.count:
            self._remark(
                f"{server.name} took {told['loaded']:,.0f} of {batch.count:,} delayed messages within "
                f"{self._sizes.load_seconds:.0f} s; its figures are for so many"
            )
        time.sleep(SETTLE_SECONDS)
        rate = told["loaded"] / told["seconds"]
        self._add(server, "pending", told["loaded"])
        self._add(server, "load.rate", rate)
        self._add(server, "memory", (server.resident_bytes() - before) / MIB)
        return rate

    def _restart(self, server: Server) -> None:
        """Stop in order, start, and wait until it knows of all that is pending."""
        held, loaded = server.pending(), int(self._samples.values("delays.pending", server.name)[-1])
        if held != loaded:
            raise RuntimeError(f"{server.name} acknowledged {loaded:,} delayed messages, and says that it has {held:,}")
        server.stop()
        begin = time.monotonic()
        server.start()
        while (now := server.pending()) != held:
            if time.monotonic() > begin + RESTART_SECONDS:
                raise RuntimeError(f"{server.name} had {held:,} pending before its restart, and has {now:,} after it")
            time.sleep(0.01)
        self._add(server, "restart", time.monotonic() - begin)
        time.sleep(SETTLE_SECONDS)
        self._add(server, "restart.memory", server.resident_bytes() / MIB)

    def _burst(self, server: Server, rate: float) -> None:
        told = self._delivered(server, "burst", self._sizes.burst, 0, rate)
        self._add(server, "burst.out", told["out_seconds"])
        self._add_lateness(server, "burst", told)

    def _steady(self, server: Server, rate: float) -> None:
        per_second = self._sizes.steady_rate
        told = self._delivered(server, "steady", per_second * self._sizes.steady_seconds, per_second, rate)
        self._add_lateness(server, "steady", told)

    def _delivered(self, server: Server, name: str, count: int, per_second: int, rate: float) -> Result:
        """Load a batch before it is due; what the consumer tells of it."""
        memory.settle()
        expected_s = 3 * count / rate + LEAD_SECONDS
        due_ms = _now_ms() + int(expected_s * 1000)
        batch = Batch(name, count, due_ms, per_second)
        patience = READ_SECONDS + expected_s + (count / per_second if per_second else 0)
        with server.client.reading(batch, patience) as result:
            loaded = server.client.ask("load", batch, expected_s * 2)
            if loaded["loaded"] < count or loaded["done_ms"] > due_ms:
                late_s = (loaded["done_ms"] - due_ms) / 1000
                told_of = f"{loaded['loaded']:,.0f} of {count:,} were loaded, {late_s:.1f} s after the due time"
                raise RuntimeError(f"{server.name}, {name}: {told_of}")
            told = result()
        if what := wrong(told):
            raise RuntimeError(f"{server.name}, {name} of {count:,}: {what}")
        return told

    def _add_lateness(self, server: Server, name: str, told: Result) -> None:
        for figure in ("late.p50", "late.p99", "late.max", "stamped.p99"):
            self._add(server, f"{name}.{figure}", told[figure])

    def _add(self, server: Server, figure: str, value: float) -> None:
        self._samples.add(f"delays.{figure}", server.name, value)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
