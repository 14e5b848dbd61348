"""The three systems that hold delayed messages: how each is prepared, started, asked and stopped.

Used by section.py. Equal terms: all acknowledge before a message is on disk and flush every second: headrace by
default, NATS by `sync_interval` (two minutes without it), Redis by its append-only file. Redis rewrites no file in
between and takes no snapshots, which can only help it. The worker that empties Redis's sorted set counts as part of it,
in memory as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from prometheus_client.parser import text_string_to_metric_families

from bench import topics
from bench.delayed.client import Client
from bench.delayed.work import Batch
from bench.peers import CACHE, HOST, HeadraceRecipe, Peer, PeerMissing, free_port
from bench.processes import Children, resident_bytes

HEADRACE, NATS, REDIS = "headrace", "NATS JetStream", "Redis"
TOPIC = "bench-delays"
DELAYS = "headrace.delay.enable"
FETCH_SECONDS, INSTALL_SECONDS, START_SECONDS, STOP_SECONDS = 300.0, 600.0, 120.0, 60.0
WORKER_SECONDS = 3600.0
PENDING_METRIC = "headrace_delayed_pending"
_ANY = Batch("any", 1, 0)


class Server(Protocol):
    name: str
    client: Client

    def start(self) -> None:
        """Start it and wait until it answers."""

    def stop(self) -> None: ...

    def resident_bytes(self) -> int: ...

    def pending(self) -> int:
        """How many delayed messages it says that it holds."""

    def version(self) -> str: ...


class HeadraceServer:
    name = HEADRACE

    def __init__(self, children: Children, home: Path) -> None:
        self.peer = Peer(HeadraceRecipe(), children, home)
        self.client = Client(children, "bench.delayed.headrace_client", self.peer.address, TOPIC)
        self._made = False

    def start(self) -> None:
        if not self._made:
            self.peer.format()
        self.peer.start()
        if not self._made:
            topics.create(self.peer.address, TOPIC, settings={DELAYS: "true"})
            self._made = True

    def stop(self) -> None:
        self.peer.stop(STOP_SECONDS)

    def resident_bytes(self) -> int:
        return resident_bytes(self.peer.pid)

    def pending(self) -> int:
        url = f"http://{HOST}:{self.peer.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=START_SECONDS) as answer:
            return pending_told(answer.read().decode())

    def version(self) -> str:
        return ""  # the report has it already


class NatsServer:
    name = NATS

    def __init__(self, children: Children, home: Path) -> None:
        self._children, self._home = children, home
        self._port, self._monitor = free_port(), free_port()
        self._library = fetched_libraries(children)
        address = f"nats://{HOST}:{self._port}"
        self.client = Client(children, "bench.delayed.nats_client", address, TOPIC, self._library)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        new = not self._home.exists()
        if new:
            self._home.mkdir(parents=True)
        settings = self._home / "nats.conf"
        jetstream = f'store_dir: "{self._home}", sync_interval: "1s", max_file_store: 64GB'
        settings.write_text(f"listen: {HOST}:{self._port}\nhttp: {HOST}:{self._monitor}\njetstream {{ {jetstream} }}\n")
        command = [str(self._library / "bin" / "nats-server"), "-c", str(settings)]
        self._process = self._children.start(command, log=self._home / "server.log")
        answered(self._process, self.name, self._greets)
        if new:
            self.client.ask("make", _ANY, START_SECONDS)

    def stop(self) -> None:
        stopped(self._children, self._process)

    def resident_bytes(self) -> int:
        assert self._process is not None
        return resident_bytes(self._process.pid)

    def pending(self) -> int:
        with urllib.request.urlopen(f"http://{HOST}:{self._monitor}/jsz", timeout=START_SECONDS) as answer:
            return int(json.loads(answer.read())["messages"])

    def version(self) -> str:
        return _program_version([str(self._library / "bin" / "nats-server"), "-v"])

    def _greets(self) -> bool:
        with socket.create_connection((HOST, self._port), timeout=2) as connection:
            return connection.recv(4) == b"INFO"


class RedisServer:
    name = REDIS

    def __init__(self, children: Children, home: Path) -> None:
        self._children, self._home, self._port = children, home, free_port()
        self._program = installed_redis(children)
        library = fetched_libraries(children)
        self.client = Client(children, "bench.delayed.redis_client", f"{HOST}:{self._port}", TOPIC, library)
        self._process: subprocess.Popen[bytes] | None = None
        self._worker: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._home.mkdir(parents=True, exist_ok=True)
        appending = ["--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0"]
        where = ["--bind", HOST, "--port", str(self._port), "--dir", str(self._home)]
        command = [self._program, *where, *appending, "--save", ""]
        self._process = self._children.start(command, log=self._home / "server.log")
        answered(self._process, self.name, lambda: self._asked("PING").startswith("+PONG"))
        self._worker = self.client.start("work", _ANY, WORKER_SECONDS)

    def stop(self) -> None:
        stopped(self._children, self._worker)
        stopped(self._children, self._process)

    def resident_bytes(self) -> int:
        assert self._process is not None
        assert self._worker is not None
        return resident_bytes(self._process.pid) + resident_bytes(self._worker.pid)

    def pending(self) -> int:
        return int(self._asked(f"ZCARD {TOPIC}").removeprefix(":"))

    def version(self) -> str:
        return _program_version([self._program, "--version"])

    def _asked(self, command: str) -> str:
        with socket.create_connection((HOST, self._port), timeout=START_SECONDS) as connection:
            connection.sendall(command.encode() + b"\r\n")
            return connection.recv(200).decode()


# --- what they need ---------------------------------------------------------------------------------------------------


def fetched_libraries(children: Children) -> Path:
    """The folder with NATS's server and the clients of both peers, fetched once."""
    wanted = Path(__file__).with_name("peers.txt")
    folder = CACHE / f"delay-peers-{hashlib.sha256(wanted.read_bytes()).hexdigest()[:12]}"
    if not folder.exists():
        print("fetching NATS JetStream and the clients of NATS and Redis ...", file=sys.stderr)
        CACHE.mkdir(exist_ok=True)
        unfinished = folder.with_suffix(".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "install", "--target"]
        done = children.run([*pip, str(unfinished), "-r", str(wanted)], seconds=FETCH_SECONDS)
        if done.code != 0:
            raise PeerMissing(f"its server and client could not be fetched: {done.reason()}")
        unfinished.rename(folder)
    return folder


def installed_redis(children: Children) -> str:
    """Redis's program; from Debian's packages if it is missing and may be installed."""
    if not shutil.which("redis-server") and shutil.which("apt-get") and os.geteuid() == 0:
        print("installing redis-server from Debian's packages ...", file=sys.stderr)
        # In run level 1 Debian's packages do not start their services.
        apt = ["env", "RUNLEVEL=1", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
        children.run([*apt, "update"], seconds=INSTALL_SECONDS)
        children.run([*apt, "install", "-y", "redis-server"], seconds=INSTALL_SECONDS)
    program = shutil.which("redis-server")
    if not program:
        raise PeerMissing("there is no redis-server: install it, e.g. `apt install redis-server`")
    return program


def answered(process: subprocess.Popen[bytes], name: str, ask: Callable[[], bool]) -> None:
    """Wait until a server that was started answers."""
    give_up_at = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up_at and process.poll() is None:
        with contextlib.suppress(OSError):
            if ask():
                return
        time.sleep(0.005)
    raise PeerMissing(f"{name} did not start")


def stopped(children: Children, process: subprocess.Popen[bytes] | None) -> None:
    if process is not None and process.poll() is None:
        children.stop(process, seconds=STOP_SECONDS)


def pending_told(exposition: str) -> int:
    """How many pending messages headrace's metrics tell of."""
    return sum(
        int(sample.value)
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
        if sample.name == PENDING_METRIC
    )


def _program_version(command: list[str]) -> str:
    told = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    numbers = (word.removeprefix("v=").removeprefix("v").rstrip(",") for word in told.split())
    return next((number for number in numbers if number[:1].isdigit()), "")
