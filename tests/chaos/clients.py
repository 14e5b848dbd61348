"""The workload of a chaos run: recorded confluent-kafka clients, each in its own thread.

Producers, members of a group and an exactly-once pipe. A client that ends with a fatal error restarts under a new
session name, like a restarted process; that is not a failure of the cluster. The pipe has the settings with which the
SDK keeps librdkafka from waiting forever. Threads end when `stop` is set.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException

from headrace.sdk.settings import TRANSACTION_GUARDS
from sim.history.recorder import Recorder
from tests.recorded_clients import RecordedConsumer, RecordedProducer, RecordedTransactions

ORDERS, MADE, PROBE = "orders", "made", "probe"
TOPICS = {ORDERS: 3, MADE: 2}
GROUP, PIPE_GROUP = "shop", "pipe-group"
_DRAIN_S = 120.0


class Clients:
    def __init__(self, recorder: Recorder, bootstrap: str) -> None:
        self.stop_sending = threading.Event()
        self.stop_reading = threading.Event()
        self.begun_anew = 0
        self._recorder = recorder
        self._bootstrap = bootstrap
        self._senders: list[threading.Thread] = []
        self._readers: list[threading.Thread] = []

    def start(self) -> None:
        for name in ("producer-1", "producer-2"):
            self._senders.append(self._thread(name, self._produce))
        for name in ("member-1", "member-2"):
            self._readers.append(self._thread(name, self._read))
        self._readers.append(self._thread("pipe", self._pipe))
        details = {"group": PIPE_GROUP, "inputs": places(ORDERS), "outputs": places(MADE), "mode": "exactly-once"}
        self._recorder.happened("pipe", "pipe", details=details)

    def finish(self) -> list[str]:
        """Wait until all clients are done. Reports each client that hangs, and the call it is in."""
        self.stop_sending.set()
        for thread in self._senders:
            thread.join(_DRAIN_S)
        time.sleep(15)  # readers catch up
        self.stop_reading.set()
        for thread in self._readers:
            thread.join(_DRAIN_S)
        hanging = [_told(thread) for thread in (*self._senders, *self._readers) if thread.is_alive()]
        final = RecordedConsumer(self._recorder, "pipe-final/1", self._bootstrap, PIPE_GROUP, in_pipe=True)
        final.committed(*((ORDERS, index) for index in range(TOPICS[ORDERS])))
        final.close()
        return hanging

    def _thread(self, name: str, session: Callable[[str], None]) -> threading.Thread:
        def run() -> None:
            for number in itertools.count(1):
                session(f"{name}/{number}")
                if (self.stop_sending if session == self._produce else self.stop_reading).is_set():
                    return
                self.begun_anew += 1
                time.sleep(0.5)

        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def _produce(self, proc: str) -> None:
        fatal = threading.Event()
        producer = RecordedProducer(
            self._recorder, proc, self._bootstrap, linger_ms=5, message_timeout_ms=300_000,
            error_cb=lambda error: fatal.set() if error.fatal() else None,
        )  # fmt: skip
        for number in itertools.count():
            if fatal.is_set() or self.stop_sending.is_set():
                break
            producer.send(ORDERS, b"x" * (number % 100), b"k%d" % (number % 20), number % TOPICS[ORDERS])
            time.sleep(0.02)
        if not fatal.is_set():
            producer.flush(_DRAIN_S)
        self._recorder.happened(proc, "close")

    def _read(self, proc: str) -> None:
        member = RecordedConsumer(self._recorder, proc, self._bootstrap, GROUP, session_timeout_ms=10_000)
        member.subscribe(ORDERS)
        while not self.stop_reading.is_set():
            if member.poll(200, 0.2):
                member.commit()
        member.close()

    def _pipe(self, proc: str) -> None:
        with _closing(self._pipe_reader(proc)) as reader:
            guards = {name.replace(".", "_"): value for name, value in TRANSACTION_GUARDS.items()}
            writer = RecordedTransactions(
                self._recorder, f"{proc}/out", self._bootstrap, "pipe", transaction_timeout_ms=20_000, **guards
            )
            try:
                writer.init()
                reader.subscribe(ORDERS)
                while not self.stop_reading.is_set():
                    self._transaction(reader, writer)
            except KafkaException:
                pass  # the next session starts from scratch
            self._recorder.happened(f"{proc}/out", "close")

    def _pipe_reader(self, proc: str) -> RecordedConsumer:
        return RecordedConsumer(
            self._recorder, f"{proc}/in", self._bootstrap, PIPE_GROUP, in_pipe=True, session_timeout_ms=10_000,

        )  # fmt: skip

    def _transaction(self, reader: RecordedConsumer, writer: RecordedTransactions) -> None:
        txn = writer.begin()
        records = reader.poll(100, 0.5, txn)
        for record in records:
            writer.send(MADE, b"", None, record.off % TOPICS[MADE], src=record.uid or "")
        writer.send_offsets(reader)
        writer.commit()


def _told(thread: threading.Thread) -> str:
    """Which thread hangs, and in which call."""
    frame = sys._current_frames().get(thread.ident or 0)
    calls = [f"{each.name} in {Path(each.filename).name}:{each.lineno}" for each in traceback.extract_stack(frame)[-2:]]
    return f"{thread.name} hangs: it did not end within {_DRAIN_S:g} s of the last repair; " + ", ".join(calls)


@contextmanager
def _closing(reader: RecordedConsumer) -> Iterator[RecordedConsumer]:
    try:
        yield reader
    finally:
        reader.close()


def places(topic: str) -> list[str]:
    return [f"{topic}-{index}" for index in range(TOPICS[topic])]
