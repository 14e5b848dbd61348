"""One attack on one broker: how much memory it takes, how long the canary waits, what the log grows by.

The broker is a fresh process of its own (bench/peers.py), and so is the canary. Called by test_hostile.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import processes
from bench.peers import Peer, Recipe
from tests.hostile.attacks import Attack, Target
from tests.hostile.canary import Canary

FRESH_CLIENT_S = 20.0
ROOT = Path(__file__).parents[2]
SAMPLE_S = 0.02
CALM_S = 12.0  # after an attack, until memory is looked at again: checkpoints were written, collectors had time
SHORT_CALM_S = 2.0


@dataclass(frozen=True)
class Outcome:
    """What one trial has shown. Bytes are those of resident memory."""

    before_bytes: int
    peak_bytes: int
    after_bytes: int
    longest_wait_s: float
    errors: int
    log_bytes: int
    alive: bool
    complaints: tuple[str, ...]
    """Lines of the broker's log that no stranger should be able to cause."""

    @property
    def words(self) -> str:
        sizes = (self.before_bytes, self.peak_bytes, self.after_bytes)
        return (
            f"memory {' → '.join(f'{size / 1e6:.0f}' for size in sizes)} MB, longest wait "
            f"{self.longest_wait_s * 1000:.0f} ms, {self.errors} errors, {self.log_bytes:,} bytes of log, "
            f"{'alive' if self.alive else 'no answer'}"
        )


class _Limited:
    """A broker's recipe, started under a limit on file descriptors."""

    def __init__(self, recipe: Recipe, descriptors: int) -> None:
        self.name, self.prepare, self.format = recipe.name, recipe.prepare, recipe.format
        self._recipe, self._descriptors = recipe, descriptors

    def command(self, home: Path, port: int, metrics_port: int) -> list[str]:
        limit = f"--nofile={self._descriptors}:{self._descriptors}"
        return ["prlimit", limit, *self._recipe.command(home, port, metrics_port)]


class _Memory:
    """Watches the resident memory of a process."""

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self.peak_bytes = max(self.peak_bytes, resident(self._pid))


def resident(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return int(status[1]) * 4096


def run(recipe: Recipe, attack: Attack, amount: int, home: Path, *, calm_s: float = CALM_S) -> Outcome:
    """Start the broker, attack it, and look."""
    with processes.Children() as children:
        peer = Peer(recipe if attack.descriptors is None else _Limited(recipe, attack.descriptors), children, home)
        peer.format()
        peer.start()
        target = Target(peer.port)
        if attack.prepare is not None:
            attack.prepare(target, amount)
        log = home / "broker.log"
        canary = _start_canary(children, peer.port)
        before, logged = resident(peer.pid), log.stat().st_size
        with _Memory(peer.pid) as memory:
            attack.strike(target, amount)
            time.sleep(calm_s)
        waits = _end_canary(canary)
        text = log.read_bytes()[logged:]
        alive = canary_works(peer.port)
        after = resident(peer.pid)
        peer.stop()
    return Outcome(
        before,
        memory.peak_bytes,
        after,
        waits["longest_s"],
        int(waits["errors"]),
        len(text),
        alive,
        complaints(text.decode(errors="replace").splitlines()),
    )


def complaints(lines: Sequence[str]) -> tuple[str, ...]:
    wrong = ("Traceback", "OutOfMemoryError", "MemoryError", "disk failed", "Too many open files")
    return tuple(line for line in lines if any(word in line for word in wrong))


def _start_canary(children: processes.Children, port: int) -> subprocess.Popen[bytes]:
    process = children.start([sys.executable, "-m", "tests.hostile.canary", str(port)], piped=True, cwd=ROOT)
    assert process.stdout is not None
    line = process.stdout.readline()
    if line.strip() != b"ready":
        raise RuntimeError("the canary did not start")
    time.sleep(0.5)
    return process


def _end_canary(process: subprocess.Popen[bytes]) -> dict[str, float]:
    out, _ = process.communicate(timeout=60)
    report: dict[str, float] = json.loads(out.decode().splitlines()[-1])
    return report


def canary_works(port: int) -> bool:
    """Whether a new client can write and read."""
    canary = Canary(port, FRESH_CLIENT_S)
    try:
        canary.settle()
    except SystemExit:
        return False
    return True
