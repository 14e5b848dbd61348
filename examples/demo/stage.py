"""The environment of the demo: a broker in its own process, topics, and a thread that produces web logs."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from examples.demo.weblogs import WebLogs

HEADRACE = str(Path(sys.executable).parent / "headrace")
PATIENCE_S = 60.0


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """Run `headrace serve` on a free port; yields its address."""
    process = subprocess.Popen(
        [HEADRACE, "serve", "--data", str(folder), "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,  # Ctrl-C reaches only the demo, which stops the broker last
    )  # fmt: skip
    said: queue.Queue[str] = queue.Queue()
    assert process.stdout is not None
    output = process.stdout

    def listen() -> None:
        for line in output:
            said.put(line)

    threading.Thread(target=listen, daemon=True).start()
    try:
        yield address_in(said)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def address_in(said: queue.Queue[str]) -> str:
    """The address that the broker prints when it is ready."""
    heard: list[str] = []
    give_up_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at:
        try:
            heard.append(said.get(timeout=1.0))
        except queue.Empty:
            continue
        for word in heard[-1].split():
            host, _, port = word.strip("(),.").rpartition(":")
            if host == "127.0.0.1" and port.isdecimal() and port != "0":
                return f"{host}:{port}"
    raise SystemExit("the broker did not start:\n" + "".join(heard))


def create_topics(bootstrap: str, names: dict[str, int]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(name, count, 1) for name, count in names.items()]).values():
        future.result(PATIENCE_S)


class Shipper(threading.Thread):
    """Sends web logs to a topic until told to stop."""

    def __init__(self, bootstrap: str, topic: str, lines_per_s: int) -> None:
        super().__init__(name="shipper", daemon=True)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0})
        self._topic = topic
        self._per_turn = max(1, lines_per_s // 10)
        self._over = threading.Event()
        self.sent = 0

    def run(self) -> None:
        logs = WebLogs()
        while not self._over.wait(0.1):
            for line in logs.lines(self._per_turn, time.time()):
                headers: list[tuple[str, str | bytes | None]] = [("headrace.id", line.id)]
                self._producer.produce(self._topic, line.text, line.host, headers=headers)
                self.sent += 1
            self._producer.poll(0)

    def stop(self) -> None:
        self._over.set()
        self.join(PATIENCE_S)
        self._producer.flush(PATIENCE_S)
