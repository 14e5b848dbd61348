"""The broker that is killed: a separate process, always with the same port and data."""

import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

PATIENCE_S = 60.0
# Length, ApiVersions (18) version 0, correlation id 1, client id "up?".
UP_REQUEST = struct.pack(">ihhih3s", 13, 18, 0, 1, 3, b"up?")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Victim:
    def __init__(self, folder: Path, settings: str = "") -> None:
        self.data = folder / "data"
        self.port = free_port()
        self.program = [str(Path(sys.executable).parent / "headrace")]
        self.log_path = folder / "broker.log"
        self._config_path = folder / "broker.properties"
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> float:
        """Start and wait until the broker answers requests; returns the seconds that this took."""
        before = time.monotonic()
        self.spawn()
        while not self._answers():
            process = self._process
            if process is None or process.poll() is not None or time.monotonic() - before > PATIENCE_S:
                raise AssertionError(f"the broker did not start; the end of its log:\n{self.log_tail()}")
            time.sleep(0.01)
        return time.monotonic() - before

    def spawn(self) -> None:
        """Start without waiting."""
        command = [*self.program, "serve", "--data", str(self.data), "--listen", self.bootstrap]
        command += ["--config", str(self._config_path)]
        self._config_path.write_text(self._settings)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def has_died(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def __enter__(self) -> "Victim":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    def log_tail(self, limit_bytes: int = 4000) -> str:
        return self.log_path.read_bytes()[-limit_bytes:].decode(errors="replace") if self.log_path.exists() else ""

    def _end(self, by: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(by)
            process.wait(PATIENCE_S)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as connection:
                connection.sendall(UP_REQUEST)
                head = connection.recv(8, socket.MSG_WAITALL)
                return head[4:] == b"\0\0\0\x01"
        except OSError:
            return False
