"""A pipe from one topic to another, while broker and worker are killed, keeps its delivery guarantee.

Exactly once: the read_committed output has each input once. At least once: none is missing. At most once: no
duplicates. The seed of the kills is printed with a failure.
"""

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .victim import PATIENCE_S, Victim

SOURCE, TARGET, PARTITIONS = "source", "target", 3
SEED = 7


class Worker:
    """A pipe_worker process that can be killed and started again."""

    def __init__(self, victim: Victim, delivery: str, log_path: Path) -> None:
        self._command = [sys.executable, str(Path(__file__).with_name("pipe_worker.py")), victim.bootstrap, delivery]
        self._command += [SOURCE, TARGET]
        self._log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE_S)
            self._process = None

    def log_tail(self) -> str:
        return self._log_path.read_bytes()[-3000:].decode(errors="replace")


@contextmanager
def running(worker: Worker) -> Iterator[Worker]:
    worker.start()
    try:
        yield worker
    finally:
        worker.kill()


def make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (SOURCE, TARGET)]).values():
        made.result(30)


class Input:
    """Writes numbers to the source, some before each kill, so that the pipe is busy at every kill."""

    def __init__(self, bootstrap: str) -> None:
        self.count = 0
        self._producer = Producer({
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        })  # fmt: skip

    def write(self, count: int) -> None:
        for number in range(self.count, self.count + count):
            while True:
                try:
                    self._producer.produce(SOURCE, str(number), partition=number % PARTITIONS)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        self.count += count

    def finish(self) -> None:
        assert self._producer.flush(60) == 0


class Output:
    """The target as a read_committed consumer sees it; read repeatedly while the pipe runs."""

    def __init__(self, bootstrap: str) -> None:
        self.seen: Counter[bytes] = Counter()
        self._consumer = Consumer({
            "bootstrap.servers": bootstrap,
            "group.id": "output",
            "isolation.level": "read_committed",
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        })  # fmt: skip
        self._consumer.assign([TopicPartition(TARGET, partition, 0) for partition in range(PARTITIONS)])

    def read(self, seconds: float) -> int:
        """Read until no record has arrived for that long; returns the total so far."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            messages = [message for message in self._consumer.consume(5000, left) if message.error() is None]
            if messages:
                self.seen.update(message.value() or b"" for message in messages)
                until = time.monotonic() + seconds
        return self.seen.total()

    def close(self) -> None:
        self._consumer.close()


def run_pipe(
    folder: Path, delivery: str, records: int, kills: int, pause_s: tuple[float, float]
) -> tuple[Counter[bytes], float]:
    """Kill broker or worker `kills` times while the pipe runs, then let it finish; returns the output."""
    chance = random.Random(SEED)
    began = time.monotonic()
    with Victim(folder) as victim:
        victim.start()
        make_topics(victim.bootstrap)
        source = Input(victim.bootstrap)
        with running(Worker(victim, delivery, folder / "worker.log")) as worker:
            for _ in range(kills):
                source.write(records // kills)
                time.sleep(chance.uniform(*pause_s))
                if chance.random() < 0.5:
                    victim.kill()
                    victim.start()
                else:
                    worker.kill()
                    worker.start()
            source.finish()
            output = Output(victim.bootstrap)
            try:
                give_up_at = time.monotonic() + PATIENCE_S + records / 2000
                wanted = 1 if delivery == "at-most-once" else records
                while len(output.seen) < wanted and time.monotonic() < give_up_at:
                    output.read(1.0)
                output.read(4.0)  # any further record is a duplicate
                if len(output.seen) < wanted:
                    print(f"the end of the worker's log:\n{worker.log_tail()}\nand the broker's:\n{victim.log_tail()}")
            finally:
                output.close()
    return output.seen, time.monotonic() - began


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once", "at-most-once"])
def test_a_pipe_keeps_its_promise_while_broker_and_worker_are_killed(
    delivery: str, tmp_path: Path, soaking: bool, remark: Callable[[str], None]
) -> None:
    records, kills, pause_s = (1_000_000, 200, (2.0, 5.0)) if soaking else (9_000, 3, (0.8, 1.8))
    seen, took_s = run_pipe(tmp_path, delivery, records, kills, pause_s)
    lost, doubled = records - len(seen), sum(count > 1 for count in seen.values())
    remark(f"pipe, {delivery}: {records:,} records, {kills} kills, {lost:,} lost, {doubled:,} repeated, {took_s:.0f} s")
    assert set(seen) <= {str(number).encode() for number in range(records)}
    if delivery != "at-most-once":
        assert lost == 0, f"seed {SEED}: {lost} of {records} records are not in the output"
    if delivery != "at-least-once":
        assert doubled == 0, f"seed {SEED}: {doubled} records are in the output more than once"
    if delivery == "at-most-once":
        assert seen, "the output is empty"
