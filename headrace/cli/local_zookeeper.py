"""A local ZooKeeper server for `headrace up` and for tests: the real one, from the jars in pyspark's wheel.

Owns the server's process, its folder and its ports on the loopback interface. It is as durable as any other ZooKeeper
(it syncs every write); only the installation is not needed. Several servers can form an ensemble: then each is
configured with all of them.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from headrace.model.failure import Failure

HOST = "127.0.0.1"
TICK_MS = 500  # sessions may be as short as two ticks and as long as forty
_READY_S = 60.0
_PORTS = range(10_000, 32_000)
_offers = itertools.count(os.getpid() * 61)  # so that processes start at different ports
_STOP_S = 10.0


class LocalZooKeeper:
    """Call `start`, then `wait_until_ready`, and `stop` at the end. `kill` and `pause` are for tests."""

    def __init__(
        self,
        folder: Path,
        port: int,
        number: int = 1,
        ensemble: Mapping[int, tuple[int, int]] | None = None,
        host: str = HOST,
        wrapping: Sequence[str] = (),
    ) -> None:
        """`ensemble`: id of each member -> its two ports for the other members. `wrapping`: a prefix of the server's
        command line, such as one that runs it in another network namespace."""
        self.host = host
        self.port = port
        self.log = folder / "zookeeper.log"
        self._folder = folder
        self._number = number
        self._ensemble = dict(ensemble or {})
        self._wrapping = list(wrapping)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "ZooKeeper is not running"
        return self._process.pid

    def start(self) -> None:
        data = self._folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(str(self._number))
        config = self._folder / "zoo.cfg"
        config.write_text("".join(f"{name}={value}\n" for name, value in self._settings(data).items()))
        command = [
            *self._wrapping, _java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-cp", f"{_jars()}/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config),
        ]  # fmt: skip
        with self.log.open("ab") as log:
            # In its own session: Ctrl-C in a terminal must not stop ZooKeeper before the brokers.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _settings(self, data: Path) -> dict[str, object]:
        settings: dict[str, object] = {
            "dataDir": data,
            "clientPortAddress": self.host,
            "clientPort": self.port,
            "tickTime": TICK_MS,
            "initLimit": 20,
            "syncLimit": 10,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr",
        }
        for number, (peer_port, election_port) in self._ensemble.items():
            settings[f"server.{number}"] = f"{self.host}:{peer_port}:{election_port}"
        return settings

    def wait_until_ready(self) -> None:
        """Returns when the server accepts requests; raises a Failure if it ends or takes too long."""
        deadline = time.monotonic() + _READY_S
        while not self._serves():
            if self._process is None or self._process.poll() is not None:
                raise Failure(f"ZooKeeper did not start; its log is {self.log}")
            if time.monotonic() > deadline:
                raise Failure(f"ZooKeeper is not ready after {_READY_S:g} s; its log is {self.log}")
            time.sleep(0.05)

    def _serves(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), timeout=2) as connection:
                connection.sendall(b"srvr")
                answer = b""
                while chunk := connection.recv(4096):
                    answer += chunk
        except OSError:
            return False
        return b"Mode: " in answer

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def pause(self, paused: bool) -> None:
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGSTOP if paused else signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_ports(count: int) -> list[int]:
    """Unused ports of the loopback interface; calls of one process never return the same port.

    They are below the range of ephemeral ports, so that a restarted server finds its port free although its clients
    open connections many times a second meanwhile.
    """
    found: list[int] = []
    while len(found) < count:
        port = _PORTS.start + next(_offers) % len(_PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        found.append(port)
    return found


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = which("java", path=f"{home}/bin") if home else None
    found = found or which("java")
    if found is None:
        raise Failure("ZooKeeper needs Java 11 or newer: install it (on Debian: apt install default-jre-headless)")
    return found


def _jars() -> Path:
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise Failure("ZooKeeper's server comes with pyspark: pip install 'headrace[spark]', or use your own ZooKeeper")
    return Path(pyspark.origin).parent / "jars"
