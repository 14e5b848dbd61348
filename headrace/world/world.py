"""The interfaces to the outside (doors), passed together to where a broker is built."""

from __future__ import annotations

from msgspec import Struct

from headrace.world.clock import Clock, SystemClock
from headrace.world.disk import Disk, RealDisk
from headrace.world.entropy import Entropy, SystemEntropy
from headrace.world.net import Net, RealNet
from headrace.world.threads import Computing, computing_thread, scanning_thread


class World(Struct, frozen=True):
    clock: Clock
    disk: Disk
    net: Net
    entropy: Entropy
    computing: Computing
    scanning: Computing | None = None  # None: what computes also scans

    @property
    def scans(self) -> Computing:
        return self.computing if self.scanning is None else self.scanning


def real_world() -> World:
    return World(SystemClock(), RealDisk(), RealNet(), SystemEntropy(), computing_thread(), scanning_thread())
