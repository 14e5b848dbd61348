"""A headrace broker as a user runs it: its own process, started by the command line.

The client suites and the compatibility run start it; they stop it by its process id. The broker counts as up once it
has answered an ApiVersions request, not when its port is open.
"""

import contextlib
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

START_DEADLINE_S = 30.0
STOP_DEADLINE_S = 20.0
# Length, API 18 version 0, correlation id 1, client id "up?".
API_VERSIONS_REQUEST = struct.pack(">ihhih3s", 13, 18, 0, 1, 3, b"up?")


# Members of the new group protocol beat when the broker says; its 5 s, and the 15 s between two compactions, would only
# make the suites wait.
SETTINGS = (
    "group.consumer.heartbeat.interval.ms=200\ngroup.consumer.session.timeout.ms=6000\nlog.cleaner.backoff.ms=200\n"
)


@dataclass(frozen=True)
class BrokerProcess:
    bootstrap: str
    log_path: Path

    def log_tail(self, since: int = 0, limit: int = 20_000) -> str:
        """What the broker printed after byte `since` of its log, cut to the last `limit` bytes."""
        printed = self.log_path.read_bytes()[since:]
        return printed[-limit:].decode(errors="replace")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(host: str, port: int) -> bool:
    """Whether a broker answers ApiVersions there."""
    try:
        with socket.create_connection((host, port), timeout=1.0) as connection:
            connection.sendall(API_VERSIONS_REQUEST)
            # Length and correlation id: enough to know that somebody speaks the protocol.
            head = connection.recv(8, socket.MSG_WAITALL)
            return len(head) == 8 and head[4:] == b"\0\0\0\x01"
    except OSError:
        return False


@contextlib.contextmanager
def headrace_broker(folder: Path) -> Iterator[BrokerProcess]:
    """Runs `headrace serve` with its data in `folder` until the block ends."""
    port = free_port()
    log_path, settings_path = folder / "broker.log", folder / "broker.properties"
    settings_path.write_text(SETTINGS)
    command = [str(Path(sys.executable).parent / "headrace"), "serve", "--data", str(folder / "data")]
    command += ["--listen", f"127.0.0.1:{port}", "--config", str(settings_path)]
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    broker = BrokerProcess(f"127.0.0.1:{port}", log_path)
    try:
        give_up_at = time.monotonic() + START_DEADLINE_S
        while not answers("127.0.0.1", port):
            if process.poll() is not None:
                raise RuntimeError(f"headrace serve ended with {process.returncode} at start:\n{broker.log_tail()}")
            if time.monotonic() > give_up_at:
                raise RuntimeError(f"headrace serve did not answer within {START_DEADLINE_S:g} s:\n{broker.log_tail()}")
            time.sleep(0.05)
        yield broker
    finally:
        process.terminate()
        try:
            process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
