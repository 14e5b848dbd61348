"""Machines of a chaos run: brokers as real processes, each on its own host with its own disk.

A broker's disk is an ext4 file system in a file. Its power is cut with ext4's own shutdown ioctl: the file system stops
immediately, and what was not on stable storage is gone after the next mount. Owns the processes and the mounts; `close`
ends and removes them. Called by tests/chaos/__main__.py.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from shutil import which

from headrace.client.blocking import Address
from tests.chaos.hosts import Hosts, command

PORT = 9092
_DISK_BYTES = 256 << 20
_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
_WITHOUT_FLUSH = struct.pack("I", 2)
_READY = b"headrace is ready"
# Under libfaketime `time.sleep`, which kazoo uses between attempts to connect, fails with EINVAL; other waits work.
_HEADRACE = """
import threading, time
time.sleep = lambda seconds: threading.Event().wait(seconds)
from headrace.cli.entry import main
main()
"""


def faketime() -> Path | None:
    """The library that changes the wall clock, if it is installed."""
    return next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)


class Machine:
    """One broker, its disk and its process."""

    def __init__(
        self, number: int, hosts: Hosts, folder: Path, zookeeper: str, settings: str, *, wrong_clocks: bool
    ) -> None:
        self.number = number
        self.log = folder / f"broker-{number}.log"
        self._hosts = hosts
        self._image = folder / f"disk-{number}.img"
        self._mount = folder / f"disk-{number}"
        self._config = folder / f"broker-{number}.properties"
        self._config.write_text(settings)
        self._zookeeper = zookeeper
        self._clock = folder / f"clock-{number}"
        self._faketime = faketime() if wrong_clocks else None
        self.set_clock_off(0)
        self._process: subprocess.Popen[bytes] | None = None
        self._tracer: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def place(self) -> Address:
        return Address(self._hosts.address(self.number), PORT)

    @property
    def address(self) -> str:
        return str(self.place)

    def make_disk(self) -> None:
        with self._image.open("wb") as image:
            image.truncate(_DISK_BYTES)
        command(which("mkfs.ext4") or "mkfs.ext4", "-q", "-F", str(self._image))
        self._mount.mkdir()
        self._attach()

    def _attach(self) -> None:
        command("mount", "-o", "loop", str(self._image), str(self._mount))

    def start(self) -> None:
        if self._process is not None:
            return
        words = [*self._hosts.inside(self.number), sys.executable, "-c", _HEADRACE]
        words += ["serve", "--data", str(self._mount / "data")]
        words += ["--listen", self.address, "--zookeeper", self._zookeeper, "--broker-id", str(self.number)]
        words += ["--config", str(self._config)]
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | self._wrong_clock(),
            )

    def _wrong_clock(self) -> dict[str, str]:
        """The environment that takes the wall clock from the file; monotonic time is not affected."""
        if self._faketime is None:
            return {}
        return {
            "LD_PRELOAD": str(self._faketime),
            "FAKETIME_TIMESTAMP_FILE": str(self._clock),
            "FAKETIME_CACHE_DURATION": "1",  # s, after which a change is seen; 10 by default
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    @property
    def registered(self) -> bool:
        """Whether the present process runs and has registered, which it can only once its predecessor's session is
        over."""
        if self._process is None or self.died:
            return False
        return _READY in self.log.read_bytes()[self._log_start :]

    @property
    def died(self) -> bool:
        """Whether the process ended on its own."""
        return self._process is not None and self._process.poll() is not None

    def forget(self) -> None:
        self._process = None

    # --- faults -----------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            if how is signal.SIGKILL:
                process.send_signal(signal.SIGCONT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(60)

    def pause(self, paused: bool) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP if paused else signal.SIGCONT)

    def cut_power(self) -> None:
        """Data that was not synced is lost; the machine stays off until `start`."""
        folder = os.open(self._mount, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, _SHUTDOWN, _WITHOUT_FLUSH)
        finally:
            os.close(folder)
        self.kill()
        self._detach()
        self._attach()

    def set_clock_off(self, seconds: int) -> None:
        """Within two seconds the wall clock is off by that much. The file, read at any time, is replaced atomically."""
        fresh = self._clock.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n")
        fresh.rename(self._clock)

    def fill_disk(self, full: bool) -> None:
        ballast = self._mount / "ballast"
        if not full:
            ballast.unlink(missing_ok=True)
            return
        with ballast.open("wb") as file:
            free = os.statvfs(self._mount)
            size = free.f_bavail * free.f_frsize - (64 << 10)
            if size > 0:
                os.posix_fallocate(file.fileno(), 0, size)

    def fail_syncs(self, failing: bool) -> None:
        """Every sync of this broker fails with EIO, while a tracer is attached to it."""
        if failing and self._process is not None:
            calls = "fsync,fdatasync"
            self._tracer = subprocess.Popen(
                ["strace", "-qq", "-f", "-p", str(self._process.pid), "-e", f"trace={calls}", "-e",
                 f"inject={calls}:error=EIO", "-o", os.devnull],
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
        elif self._tracer is not None:
            self._tracer.terminate()
            try:
                self._tracer.wait(10)
            except subprocess.TimeoutExpired:  # it waits for a thread that does not stop; killing it ends all
                self._tracer.kill()
                self._tracer.wait(10)
            self._tracer = None

    def _detach(self) -> None:
        for _ in range(50):
            if not os.path.ismount(self._mount):
                return
            command("umount", str(self._mount), check=False)
            time.sleep(0.1)

    def close(self) -> None:
        self.fail_syncs(False)
        self.kill()
        self._detach()
