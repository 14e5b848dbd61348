"""An ordinary client beside a hostile one: writes a record, reads it back, all the time, and says how long it waited.

Run as a process of its own, so that the hostile client's work does not count: `python -m tests.hostile.canary PORT`.
Ends when its standard input does, and prints one line of JSON. The first round trip, which creates the topic, is not
counted.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
import time
from dataclasses import dataclass

from bench import frames

TOPIC = "canary"
PAUSE_S = 0.01
GIVE_UP_S = 120.0
SETTLE_S = 60.0


@dataclass
class Waits:
    """What the canary has seen so far."""

    rounds: int = 0
    errors: int = 0
    longest_s: float = 0.0
    since: float | None = None
    """Since when it has waited for the present round trip."""

    def report(self) -> dict[str, float]:
        waiting_s = time.monotonic() - self.since if self.since is not None else 0.0
        return {"rounds": self.rounds, "errors": self.errors, "longest_s": max(self.longest_s, waiting_s)}


class Canary:
    def __init__(self, port: int, give_up_s: float = GIVE_UP_S) -> None:
        self.waits = Waits()
        self._port = port
        self._give_up_s = give_up_s
        self._socket: socket.socket | None = None

    def run(self) -> None:
        self.settle()
        print("ready", flush=True)
        while True:
            begin = self.waits.since = time.monotonic()
            try:
                self._round()
            except (OSError, RuntimeError):
                self.waits.errors += 1
                self._socket = None
            self.waits.since = None
            self.waits.rounds += 1
            self.waits.longest_s = max(self.waits.longest_s, time.monotonic() - begin)
            time.sleep(PAUSE_S)

    def settle(self) -> None:
        """Wait until the topic is there and has a leader."""
        until = time.monotonic() + SETTLE_S
        while time.monotonic() < until:
            try:
                self._ask(frames.metadata(1, TOPIC))
                self._round()
            except (OSError, RuntimeError):
                self._socket = None
                time.sleep(0.1)
            else:
                return
        raise SystemExit("the canary's topic cannot be written")

    def _round(self) -> None:
        batch = frames.record_batch(1, 20, int(time.time() * 1000))
        error, offset = frames.produced(self._ask(frames.produce(2, TOPIC, 0, batch)), TOPIC)
        if error:
            raise RuntimeError(f"produce answered {error}")
        got = frames.fetched(self._ask(frames.fetch(3, TOPIC, 0, offset)), TOPIC, offset)
        if got.error or got.records < 1:
            raise RuntimeError(f"fetch answered {got}")

    def _ask(self, frame: bytes) -> bytes:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=self._give_up_s)
        self._socket.sendall(frame)
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        assert self._socket is not None
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return data


def main() -> None:
    canary = Canary(int(sys.argv[1]))
    threading.Thread(target=canary.run, daemon=True).start()
    sys.stdin.read()
    print(json.dumps(canary.waits.report()), flush=True)


if __name__ == "__main__":
    main()
