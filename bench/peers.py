"""The two brokers under measurement: prepare, start, suspend, resume and stop each.

Called by every measuring file. Invariant: at most one peer is awake at any time: the other is stopped with SIGSTOP, so
that it uses no CPU. A failure or timeout while a peer is awake is reported with its name.

Equal terms: both keep records in the page cache, acknowledge before they are on disk, and flush in the background every
second: headrace by default, Kafka by its settings. Otherwise Kafka runs with the heap and collector flags of its stock
    start script, and with the settings of its stock server.properties; the script's GC log and JMX agent are omitted,
    which can only help it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from confluent_kafka import KafkaException

from bench import frames, processes

KAFKA_VERSION = "4.3.0"
CACHE = Path(__file__).parent / ".cache"
HOST = "127.0.0.1"
START_SECONDS = 300.0
WAKE_SECONDS = 60.0
SETTLE_SECONDS = 0.3
FLUSH_MS = 1000  # headrace.flush.interval.ms by default

T = TypeVar("T")


class PeerMissing(Exception):
    """This peer cannot be measured on this machine; the text says what is missing and how to get it."""


class Recipe(Protocol):
    """What differs between the two brokers."""

    name: str

    def prepare(self, children: processes.Children) -> None:
        """Fetch or check what the broker needs; raises PeerMissing."""

    def format(self, children: processes.Children, home: Path, port: int) -> None:
        """Make an empty data folder."""

    def command(self, home: Path, port: int, metrics_port: int) -> list[str]:
        """The command line of the broker."""


class HeadraceRecipe:
    name = "headrace"

    def __init__(self, name: str = name, checkout: Path | None = None) -> None:
        """The headrace of this environment, or the one whose sources are in `checkout`."""
        self.name = name
        self._program = Path(sys.prefix) / "bin" / "headrace"
        self._environment = [] if checkout is None else ["env", f"PYTHONPATH={checkout}"]

    def prepare(self, children: processes.Children) -> None:
        if not self._program.exists():
            raise PeerMissing(f"{self._program} does not exist: run `make install`")

    def format(self, children: processes.Children, home: Path, port: int) -> None:
        home.mkdir(parents=True)

    def command(self, home: Path, port: int, metrics_port: int) -> list[str]:
        addresses = ["--listen", f"{HOST}:{port}", "--metrics", f"{HOST}:{metrics_port}"]
        return [*self._environment, str(self._program), "serve", "--data", str(home / "data"), *addresses]


class KafkaRecipe:
    name = "Apache Kafka"
    heap_and_collector = (
        *("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
        *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
    )

    def __init__(self) -> None:
        self.jars = CACHE / f"kafka-{KAFKA_VERSION}"

    def prepare(self, children: processes.Children) -> None:
        if not shutil.which("java"):
            raise PeerMissing("there is no java: install Java 17 or later, e.g. `apt install openjdk-17-jre-headless`")
        pom = Path(__file__).with_name("kafka.pom.xml")
        complete = self.jars / f".complete-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
        if complete.exists():
            return
        if not shutil.which("mvn"):
            raise PeerMissing("there is no mvn to fetch its jars: install it, e.g. `apt install maven`")
        print(f"fetching the jars of Apache Kafka {KAFKA_VERSION} ...", file=sys.stderr)
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={self.jars}"]
        done = children.run(["mvn", "-q", "-B", "-f", str(pom), f"-Dkafka.version={KAFKA_VERSION}", *copy], seconds=600)
        if done.code != 0:
            raise PeerMissing(f"Maven could not fetch its jars: {done.reason()}")
        complete.touch()

    def format(self, children: processes.Children, home: Path, port: int) -> None:
        controller_port = free_port()
        self.format_member(children, home, 1, port, controller_port, f"1@{HOST}:{controller_port}")

    def format_member(
        self, children: processes.Children, home: Path, number: int, port: int, controller_port: int, voters: str
    ) -> None:
        """Make the empty data folder of one broker of a cluster, which may be the only one."""
        home.mkdir(parents=True)
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(number),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(home / "data"),
            "num.network.threads": "3",
            "num.io.threads": "8",
            "socket.send.buffer.bytes": "102400",
            "socket.receive.buffer.bytes": "102400",
            "num.recovery.threads.per.data.dir": "2",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            # Like headrace's default: acknowledged records are on disk a second later.
            "log.flush.interval.ms": str(FLUSH_MS),
            "log.flush.scheduler.interval.ms": str(FLUSH_MS),
            # Like headrace: a topic's files are deleted with it, not a minute later, during another measurement.
            "log.segment.delete.delay.ms": "100",
            # Under SIGSTOP the broker sends no heartbeats; the controller must not fence it for that.
            "broker.session.timeout.ms": "3600000",
        }
        (home / "server.properties").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        (home / "log4j2.properties").write_text(
            "rootLogger.level = warn\nrootLogger.appenderRef.out.ref = out\n"
            "appender.out.type = Console\nappender.out.name = out\n"
            "appender.out.layout.type = PatternLayout\nappender.out.layout.pattern = %p %m (%c)%n%throwable\n"
        )
        format_command = ["kafka.tools.StorageTool", "format", "-t", "aGVhZHJhY2UtYmVuY2gtMQ"]
        command = [*self._java(home), *format_command, "-c", str(home / "server.properties")]
        done = children.run(command, seconds=60)
        if done.code != 0:
            raise PeerMissing(f"its data folder could not be formatted: {done.reason()}")

    def command(self, home: Path, port: int, metrics_port: int) -> list[str]:
        java = self._java(home)
        return [java[0], *self.heap_and_collector, *java[1:], "kafka.Kafka", str(home / "server.properties")]

    def _java(self, home: Path) -> list[str]:
        return ["java", f"-Dlog4j2.configurationFile={home / 'log4j2.properties'}", "-cp", f"{self.jars}/*"]


class Peer:
    """One broker process with its own data folder and ports."""

    def __init__(self, recipe: Recipe, children: processes.Children, home: Path) -> None:
        self.name = recipe.name
        self.port, self.metrics_port = free_port(), free_port()
        self._recipe, self._children, self._home = recipe, children, home
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    def format(self) -> None:
        self._recipe.format(self._children, self._home, self.port)

    def start(self) -> float:
        """Start the broker; returns the seconds until it answered ApiVersions."""
        log = self._home / "broker.log"
        begin = time.monotonic()
        command = self._recipe.command(self._home, self.port, self.metrics_port)
        self._process = self._children.start(command, log=log)
        while time.monotonic() < begin + START_SECONDS:
            if answers(self.port):
                return time.monotonic() - begin
            if self._process.poll() is not None:
                break
            time.sleep(0.005)
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        self.stop()
        raise PeerMissing(f"{self.name} did not start: {lines[-1].strip() if lines else 'it printed nothing'}")

    def stop(self, seconds: float = processes.STOP_SECONDS) -> bool:
        """Stop the broker; True if it stopped cleanly within the time."""
        process, self._process = self._process, None
        return self._children.stop(process, seconds=seconds) if process else True

    def charged(self, work: Callable[[], T]) -> tuple[T, float]:
        """The result of the work, and the broker's CPU seconds meanwhile."""
        before = processes.cpu_seconds(self.pid)
        done = work()
        return done, processes.cpu_seconds(self.pid) - before

    def sleep(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def awake(self) -> Iterator[None]:
        """The block in which only this peer runs. Earlier writes are flushed before it starts, so that this peer does
        not pay for them."""
        assert self._process is not None
        os.sync()
        self.wake()
        try:
            deadline = time.monotonic() + WAKE_SECONDS
            while not answers(self.port):
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(
                        f"{self.name} no longer answers on port {self.port}; see {self._home}/broker.log"
                    )
                time.sleep(0.01)
            time.sleep(SETTLE_SECONDS)
            with self.blamed():
                yield
        finally:
            self.sleep()

    @contextlib.contextmanager
    def blamed(self) -> Iterator[None]:
        """Adds this peer's name to a failure inside the block."""
        try:
            yield
        except (RuntimeError, OSError, KafkaException) as error:
            if self.name in str(error):
                raise
            raise RuntimeError(f"{self.name}: {str(error) or type(error).__name__}") from error


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def answers(port: int) -> bool:
    """Whether a broker answers ApiVersions on this port."""
    try:
        with socket.create_connection((HOST, port), timeout=2) as connection:
            connection.sendall(frames.api_versions(1))
            return len(connection.recv(4)) == 4
    except OSError:
        return False
