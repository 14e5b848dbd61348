"""Builds and runs the librdkafka load generator (load.c).

The generator links against the librdkafka in confluent-kafka's wheel, so both peers are measured with the most common
client library, and only a C compiler is needed. Throughput and latency files call `Generator`; one call is one process,
one line of JSON.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import shutil
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.peers import CACHE
from bench.processes import Children

RUN_SECONDS = 120


class Target(Protocol):
    """The target: a broker or a cluster."""

    name: str

    @property
    def address(self) -> str: ...


class GeneratorMissing(Exception):
    """The load generator cannot be built here; the text says why and what to do."""


@dataclass(frozen=True)
class Work:
    """The result of one run, and the CPU time of the generator itself."""

    messages: int
    payload_bytes: int
    seconds: float
    parts: int  # transactions; 1 without
    generator_cpu_seconds: float


@dataclass(frozen=True)
class Order:
    """One job for the generator."""

    topic: str
    count: int
    size: int = 100
    partitions: int = 1
    clients: int = 1
    settings: tuple[str, ...] = ()


class Generator:
    """The compiled generator."""

    def __init__(self, program: Path, children: Children, prefix: Sequence[str] = ()) -> None:
        self._program, self._children, self._prefix = program, children, list(prefix)

    def inside(self, prefix: Sequence[str]) -> Generator:
        """The same, started by another command, such as one that enters a network namespace."""
        return Generator(self._program, self._children, prefix)

    def library(self) -> str:
        """The version of its librdkafka."""
        return "librdkafka " + self._children.run([str(self._program), "version"], seconds=10).out.strip()

    def produce(self, peer: Target, order: Order) -> Work:
        return self._work("produce", peer, order)

    def transactions(self, peer: Target, order: Order) -> Work:
        """Produce in transactions that are committed every 100 ms; the order's settings name the transactional id."""
        return self._work("transactions", peer, order)

    def consume(self, peer: Target, order: Order) -> Work:
        return self._work("consume", peer, order)

    def acknowledgement_seconds(self, peer: Target, order: Order) -> list[float]:
        """One message at a time: seconds from the call to the acknowledgement."""
        return self._times("ack", peer, order)

    def end_to_end_seconds(self, peer: Target, order: Order) -> list[float]:
        """One message at a time: seconds from the call until a waiting consumer has it."""
        return self._times("end-to-end", peer, order)

    @contextlib.contextmanager
    def echo(self, folder: Path) -> Iterator[int]:
        """The port of a server that does the minimum of a broker: it writes what it receives, and answers."""
        process = self._children.start([str(self._program), "echo", str(folder / "echo"), str(RUN_SECONDS)], piped=True)
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            self._children.stop(process, seconds=1.0)
            (folder / "echo").unlink(missing_ok=True)

    def _work(self, mode: str, peer: Target, order: Order) -> Work:
        out, cpu_seconds = self._run(mode, peer, order)
        return Work(out["messages"], out["bytes"], out["seconds"], out["parts"], cpu_seconds)

    def _times(self, mode: str, peer: Target, order: Order) -> list[float]:
        return [nanoseconds / 1e9 for nanoseconds in self._run(mode, peer, order)[0]["nanoseconds"]]

    def _run(self, mode: str, peer: Target, order: Order) -> tuple[dict[str, Any], float]:
        numbers = [order.partitions, order.count, order.size, RUN_SECONDS, order.clients]
        command = [str(self._program), mode, peer.address, order.topic, *map(str, numbers), *order.settings]
        done = self._children.run([*self._prefix, *command], seconds=RUN_SECONDS + 10)
        if done.code != 0:
            hung = done.code == -signal.SIGALRM
            why = f"did not finish within {RUN_SECONDS} s" if hung else f"failed: {done.reason()}"
            raise RuntimeError(f"{peer.name}: {mode} of {order.count:,} messages on {order.topic} {why}")
        out: dict[str, Any] = json.loads(done.out)
        if out["failed"]:
            raise RuntimeError(f"{peer.name}: {mode} on {order.topic}: {out['failed']} messages failed: {out['error']}")
        return out, done.cpu_seconds


def build(children: Children) -> Generator:
    """Compile the generator, or reuse the one compiled from the same source."""
    library = _librdkafka()
    folder = Path(__file__).parent
    sources = [folder / "load.c", folder / "rdkafka_abi.h"]
    print_of_inputs = hashlib.sha256(b"".join(one.read_bytes() for one in sources) + str(library).encode()).hexdigest()
    program = CACHE / f"load-{print_of_inputs[:12]}"
    if not program.exists():
        compiler = shutil.which("cc")
        if not compiler:
            raise GeneratorMissing(
                "the load generator needs a C compiler: install one, e.g. `apt install gcc libc6-dev`"
            )
        CACHE.mkdir(exist_ok=True)
        flags = ["-O2", "-Wall", "-Wextra", "-std=gnu11", "-pthread"]
        link = [str(library), f"-Wl,-rpath,{library.parent}"]
        made = program.with_suffix(".new")
        done = children.run([compiler, *flags, "-o", str(made), str(sources[0]), *link], seconds=60)
        if done.code != 0:
            raise GeneratorMissing(f"the load generator did not compile: {done.reason()}")
        made.rename(program)
    return Generator(program, children)


def _librdkafka() -> Path:
    spec = importlib.util.find_spec("confluent_kafka")
    if spec is None or spec.origin is None:
        raise GeneratorMissing("confluent-kafka is not installed: run `make install`")
    bundled = sorted((Path(spec.origin).parent.parent / "confluent_kafka.libs").glob("librdkafka-*.so*"))
    if not bundled:
        raise GeneratorMissing("this build of confluent-kafka has no librdkafka in it: install its wheel")
    return bundled[0]
