"""The faults of a chaos run: chosen by the seed, applied to real processes, and repaired.

One fault at a time, for seconds, with pauses between them. As in the simulation they stay within what headrace
promises: a machine loses writes only while all others are in sync, unless topics sync before they acknowledge.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from headrace.cli.local_zookeeper import LocalZooKeeper
from tests.chaos.clients import PROBE
from tests.chaos.hosts import Hosts
from tests.chaos.machines import Machine
from tests.chaos.probe import seconds_until_writable

ZOOKEEPER = 100

KINDS = {
    "kill": "a broker is killed and restarted",
    "stop": "a broker is stopped cleanly and restarted",
    "pause": "a broker is suspended for up to ten seconds",
    "split": "two brokers cannot reach each other",
    "deaf": "one broker receives nothing from another, but can send to it",
    "alone": "a broker is cut off from the network",
    "unseen": "a broker cannot reach ZooKeeper",
    "slow": "a broker's link is slow",
    "power": "a broker loses power: unsynced data is lost",
    "full": "a broker's disk is full",
    "fsync": "every sync of a broker fails with an IO error; it then loses power",
    "clock": "a broker's wall clock is wrong by up to an hour, then corrected",
    "keeper-kill": "ZooKeeper is killed and restarted",
    "keeper-pause": "ZooKeeper is suspended",
}


class Faults:
    def __init__(
        self,
        seed: int,
        hosts: Hosts,
        machines: Mapping[int, Machine],
        zookeeper: LocalZooKeeper,
        leader_of: Callable[[str], int | None],
        in_sync: Callable[[], bool],
        kinds: Sequence[str],
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.writable_after_s: list[float] = []
        self.never_writable = 0
        self._random = random.Random(seed)
        self._hosts = hosts
        self._machines = machines
        self._zookeeper = zookeeper
        self._leader_of = leader_of
        self._in_sync = in_sync
        self._kinds = list(kinds)

    def one(self, tell: Callable[[str], None]) -> None:
        """Apply the next fault and repair it."""
        kind = self._random.choice(self._kinds)
        number = self._random.choice(sorted(self._machines))
        other = self._random.choice([each for each in self._machines if each != number])
        lasts_s = self._random.uniform(1, 10)
        if kind in ("power", "fsync") and not self._in_sync():
            return
        self.counts[kind] += 1
        tell(f"{kind} {number} {lasts_s:.1f} s")
        act: Callable[[Machine, int, float], None] = getattr(self, "_" + kind.replace("-", "_"))
        act(self._machines[number], other, lasts_s)

    def heal(self) -> None:
        self._hosts.mend()
        self._zookeeper.pause(False)
        for machine in self._machines.values():
            machine.fail_syncs(False)
            machine.fill_disk(False)
            machine.set_clock_off(0)
            machine.pause(False)
            self.supervise()

    def supervise(self) -> None:
        """Start the processes that are not running."""
        for machine in self._machines.values():
            if machine.died:
                machine.forget()
            machine.start()

    # --- each -------------------------------------------------------------------------------------------------------

    def _kill(self, machine: Machine, other: int, lasts_s: float) -> None:
        leader = self._leader_of(PROBE)
        victim = self._machines.get(leader or -1, machine)
        all_there = self._in_sync()  # else a write may wait for replicas that recover from an earlier fault
        victim.kill()
        took = seconds_until_writable([each.place for each in self._machines.values() if each is not victim], PROBE)
        if took is None:
            self.never_writable += 1
        elif all_there:
            self.writable_after_s.append(took)
        victim.start()

    def _stop(self, machine: Machine, other: int, lasts_s: float) -> None:
        machine.stop()
        time.sleep(lasts_s)
        machine.start()

    def _pause(self, machine: Machine, other: int, lasts_s: float) -> None:
        machine.pause(True)
        time.sleep(lasts_s)
        machine.pause(False)

    def _split(self, machine: Machine, other: int, lasts_s: float) -> None:
        self._hosts.cut(machine.number, other)
        self._deaf(machine, other, lasts_s)

    def _deaf(self, machine: Machine, other: int, lasts_s: float) -> None:
        self._hosts.cut(other, machine.number)
        time.sleep(lasts_s)
        self._hosts.mend()

    def _alone(self, machine: Machine, other: int, lasts_s: float) -> None:
        self._hosts.isolate(machine.number)
        time.sleep(lasts_s)
        self._hosts.mend()

    def _unseen(self, machine: Machine, other: int, lasts_s: float) -> None:
        self._hosts.cut(machine.number, ZOOKEEPER)
        self._hosts.cut(ZOOKEEPER, machine.number)
        time.sleep(lasts_s)
        self._hosts.mend()

    def _slow(self, machine: Machine, other: int, lasts_s: float) -> None:
        self._hosts.slow(machine.number)
        time.sleep(lasts_s)
        self._hosts.mend()

    def _power(self, machine: Machine, other: int, lasts_s: float) -> None:
        machine.cut_power()
        time.sleep(lasts_s)
        machine.start()

    def _full(self, machine: Machine, other: int, lasts_s: float) -> None:
        machine.fill_disk(True)
        time.sleep(lasts_s)
        machine.fill_disk(False)

    def _clock(self, machine: Machine, other: int, lasts_s: float) -> None:
        machine.set_clock_off(self._random.randint(-3600, 3600))
        time.sleep(2 + lasts_s)
        machine.set_clock_off(0)

    def _fsync(self, machine: Machine, other: int, lasts_s: float) -> None:
        machine.fail_syncs(True)
        time.sleep(min(lasts_s, 4))
        machine.fail_syncs(False)
        self._power(machine, other, 1)

    def _keeper_kill(self, machine: Machine, other: int, lasts_s: float) -> None:
        self._zookeeper.kill()
        time.sleep(lasts_s)
        self._zookeeper.start()
        self._zookeeper.wait_until_ready()

    def _keeper_pause(self, machine: Machine, other: int, lasts_s: float) -> None:
        self._zookeeper.pause(True)
        time.sleep(lasts_s)
        self._zookeeper.pause(False)
