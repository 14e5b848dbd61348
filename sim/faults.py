"""The faults of a simulation: a plan drawn from the seed, and how each fault is injected and removed.

Every fault has a beginning and an end; several may overlap. The faults are limited by what headrace promises: an
acknowledged record survives as long as one in-sync replica keeps its disk. So one machine at a time loses power or its
disk, and the next one only when every running process is back in sync (`in_sync`); with `headrace.flush=fsync` all
machines may lose power at once. All other faults are random. Used by sim/story.py; `KINDS` is the list for
docs/simulation.md.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable

from sim.cluster import Machine, SimCluster

Done = Callable[[str], None]
_FARTHEST_MS = 3_000_000  # records more than an hour in the future are rejected

KINDS = {
    "kill": "a broker is killed, and started again",
    "stop": "a broker is stopped cleanly, and started again",
    "power": "a broker loses power: unsynced writes are lost, kept or torn",
    "blackout": "all brokers lose power at once (fsync only)",
    "pause": "a broker stands still, often for longer than its session lasts",
    "split": "the links between two brokers are cut",
    "deaf": "one broker hears nothing from another, which hears it",
    "alone": "a broker loses all links to the others, and keeps its clients",
    "unseen": "a broker cannot reach ZooKeeper, and everybody else",
    "slow": "the links of a broker become slow",
    "reset": "connections between two brokers break",
    "clock": "a broker's wall clock is set wrong by up to fifty minutes",
    "strand": "a broker and its ZooKeeper server are cut off from the other servers, often until its session has ended",
    "blink": "a broker's connection to ZooKeeper breaks",
    "mute": "a write to ZooKeeper takes effect and its answer is lost",
    "keeper": "ZooKeeper is away",
    "full": "a broker's disk is full",
    "wipe": "a broker comes back with an empty disk in the place of its own",
    "fsync": "a broker's disk fails to sync; it is then replaced in the manner of a power cut",
}

_FOR_DELAYS = ["clock"] * 4  # in stories with delayed messages these come more often


class Faults:
    def __init__(
        self,
        cluster: SimCluster,
        seed: int,
        *,
        fsync: bool,
        tell: Done,
        clock_set: Callable[[int], None],
        delays: bool = False,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._cluster = cluster
        self._random = random.Random(f"faults {seed}")
        self._kinds = [kind for kind in KINDS if fsync or kind != "blackout"]
        self._kinds += _FOR_DELAYS if delays else []
        self._longest_rest_s = 1.5 if self._random.random() < 0.3 else 8.0  # some seeds have frequent faults
        self._tell = tell
        self._clock_set = clock_set
        self._synced = fsync
        self._losing = False  # a machine has lost writes and is not back in sync

    async def run(self, duration_s: float) -> None:
        """Injects faults for this time; when this returns, the last one may still be active."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + duration_s
        longest_rest_s = min(self._longest_rest_s, duration_s / 4)  # a short story needs faults, too
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(self._random.uniform(0.2, longest_rest_s))
                if loop.time() >= end_s:
                    return
                group.create_task(self._one(self._random.choice(self._kinds)))

    async def heal(self) -> None:
        """Removes all faults permanently."""
        self._cluster.network.mend()
        if not self._cluster.ensemble.running:
            self._cluster.ensemble.start()
        for machine in self._cluster.machines.values():
            self._cluster.ensemble.mend(machine.name)
            machine.disk.room_bytes = None
            machine.disk.fail_syncs = 0
            machine.set_clock_off(0)
            if machine.process is not None:
                machine.process.resume()
            machine.start()

    async def _one(self, kind: str) -> None:
        machine = self._random.choice(list(self._cluster.machines.values()))
        others = [other for other in self._cluster.machines.values() if other is not machine]
        lasts_s = self._random.uniform(0.5, 12.0)
        if kind in ("power", "fsync", "blackout", "wipe") and not self._may_lose(kind):
            return
        self.counts[kind] += 1
        self._tell(f"{kind} {machine.name} {lasts_s:.1f}")
        act: Callable[[Machine, Machine, float], Awaitable[None]] = getattr(self, f"_{kind}")
        await act(machine, self._random.choice(others), lasts_s)

    def _may_lose(self, kind: str) -> bool:
        """Whether writes may be lost now: on one machine, while all others have everything."""
        if self._synced and kind != "wipe":
            return True
        return not self._losing and in_sync(self._cluster)

    # --- processes and machines -------------------------------------------------------------------------------------

    async def _kill(self, machine: Machine, other: Machine, lasts_s: float) -> None:
        machine.kill()
        await asyncio.sleep(lasts_s)
        machine.start()

    async def _stop(self, machine: Machine, other: Machine, lasts_s: float) -> None:
        await machine.stop()
        await asyncio.sleep(lasts_s)
        machine.start()

    async def _power(self, machine: Machine, other: Machine, lasts_s: float) -> None:
        self._losing = True
        machine.cut_power()
        await asyncio.sleep(lasts_s)
        machine.start()
        await self._cluster.until(lambda: in_sync(self._cluster), 3600)
        self._losing = False

    async def _wipe(self, machine: Machine, other: Machine, lasts_s: float) -> None:
        self._losing = True
        machine.kill()
        machine.replace_disk()
        await asyncio.sleep(lasts_s)
        machine.start()
        await self._cluster.until(lambda: in_sync(self._cluster), 3600)
        self._losing = False

    async def _blackout(self, machine: Machine, other: Machine, lasts_s: float) -> None:
        for each in self._cluster.machines.values():
            each.cut_power()
        await asyncio.sleep(lasts_s)
        for each in self._cluster.machines.values():
            each.start()

    async def _pause(self, machine: Machine, other: Machine, lasts_s: float) -> None:
        process = machine.process
        if process is not None:
            process.pause()
            await asyncio.sleep(lasts_s)
            process.resume()

    # --- links ------------------------------------------------------------------------------------------------------

    async def _split(self, machine: Machine, other: Machine, lasts_s: float) -> None:
        self._cluster.network.cut(machine.name, other.name)
        await asyncio.sleep(lasts_s)
        self._cluster.network.mend()

    async def _deaf(self, machine: Machine, other: Machine, lasts_s: float) -> None:
        self._cluster.network.cut(other.name, machine.name, one_way=True)
        await asyncio.sleep(lasts_s)
        self._cluster.network.mend()

    async def _alone(self, machine: Machine, other: Machine, lasts_s: float) -> None:
        for each in self._cluster.machines.values():
            if each is not machine:
                self._cluster.network.cut(machine.name, each.name)
        await asyncio.sleep(lasts_s)
        self._cluster.network.mend()

    async def _unseen(self, machine: Machine, other: Machine, lasts_s: float) -> None:
        self._cluster.ensemble.cut(machine.name)
        await asyncio.sleep(lasts_s)
        self._cluster.ensemble.mend(machine.name)

    async def _slow(self, machine: Machine, other: Machine, lasts_s: float) -> None:
        for each in self._cluster.machines.values():
            if each is not machine:
                self._cluster.network.slow(machine.name, each.name, self._random.uniform(0.1, 1.5))
        await asyncio.sleep(lasts_s)
        self._cluster.network.mend()

    async def _reset(self, machine: Machine, other: Machine, lasts_s: float) -> None:
        self._cluster.network.reset(machine.name, other.name)

    # --- clocks, ZooKeeper, disks -----------------------------------------------------------------------------------

    async def _clock(self, machine: Machine, other: Machine, lasts_s: float) -> None:
        off_ms = self._random.randint(-_FARTHEST_MS, _FARTHEST_MS)
        self._clock_set(off_ms)
        machine.set_clock_off(off_ms)

    async def _strand(self, machine: Machine, other: Machine, lasts_s: float) -> None:
        self._cluster.ensemble.strand(machine.name)
        await asyncio.sleep(lasts_s)
        self._cluster.ensemble.mend(machine.name)

    async def _blink(self, machine: Machine, other: Machine, lasts_s: float) -> None:
        self._cluster.ensemble.break_connection(machine.name)

    async def _mute(self, machine: Machine, other: Machine, lasts_s: float) -> None:
        self._cluster.ensemble.lose_reply(machine.name)

    async def _keeper(self, machine: Machine, other: Machine, lasts_s: float) -> None:
        self._cluster.ensemble.stop()
        await asyncio.sleep(lasts_s)
        self._cluster.ensemble.start()

    async def _full(self, machine: Machine, other: Machine, lasts_s: float) -> None:
        machine.disk.room_bytes = self._random.randint(0, 2000)
        await asyncio.sleep(lasts_s)
        machine.disk.room_bytes = None

    async def _fsync(self, machine: Machine, other: Machine, lasts_s: float) -> None:
        self._losing = True
        machine.disk.fail_syncs = 1
        await asyncio.sleep(lasts_s)
        machine.disk.fail_syncs = 0
        await self._power(machine, other, 1.0)


def in_sync(cluster: SimCluster) -> bool:
    """Whether the running process of every broker is in sync for each of its replicas, as ZooKeeper knows it.

    An ISR entry names one start of a broker, by its epoch. The entry of an earlier process remains until that session
    has ended, and says nothing about what is on the broker's disk now.
    """
    epochs = {machine.id: machine.epoch for machine in cluster.machines.values()}
    if None in epochs.values():
        return False
    return all(
        not state.removing and set(state.isr) == {(broker, epochs[broker]) for broker in state.replicas}
        for state in cluster.states()
    )
