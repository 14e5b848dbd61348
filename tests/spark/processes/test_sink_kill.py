"""The driver of a streaming query is killed again and again: the committed rows are the input, each once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from headrace.testing.local_broker import LocalBroker
from tests.broker.spark.sink.world import committed, create_topic, end_offsets

ROOT = Path(__file__).resolve().parents[3]
TOPIC = "survivors"
SEED = 11
START_S = 300  # until a driver has written something
FINISH_S = 600


class Victim:
    """The driver with its JVM and all workers: one process group."""

    def __init__(self, broker: LocalBroker, folder: Path) -> None:
        self._command = [sys.executable, "-m", "tests.spark.processes.sink_victim", broker.bootstrap, TOPIC]
        self._command += [str(folder / "files"), str(folder / "checkpoint")]
        self._log = folder / "victim.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def ended(self) -> int | None:
        assert self._process is not None
        return self._process.poll()

    def kill(self) -> None:
        if self._process is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._process.wait(60)
            self._process = None

    def last_words(self) -> str:
        return self._log.read_bytes()[-3000:].decode(errors="replace")


def write_input(folder: Path, files: int, lines: int) -> list[str]:
    folder.mkdir()
    rows = [f"{number:07}" for number in range(files * lines)]
    for number in range(files):
        share = rows[number * lines : (number + 1) * lines]
        (folder / f"{number:04}.txt").write_text("".join(f"{row}\n" for row in share))
    return rows


def done_batches(folder: Path) -> int:
    """How many batches the query's checkpoint has as done."""
    return len(list((folder / "checkpoint" / "commits").glob("[0-9]*")))


def wait_for(victim: Victim, done: Callable[[], bool], within_s: float, what: str) -> None:
    """Until it is done, or the victim has ended by itself."""
    deadline = time.monotonic() + within_s
    while not done():
        if victim.ended() is not None:
            assert victim.ended() == 0, f"the driver failed:\n{victim.last_words()}"
            return
        assert time.monotonic() < deadline, f"{what} did not happen within {within_s} s:\n{victim.last_words()}"
        time.sleep(0.01)


def test_a_driver_that_is_killed_writes_every_row_once(tmp_path: Path, soaking: bool) -> None:
    kills, files, lines = (50, 100, 10_000) if soaking else (1, 4, 2_000)
    chance = random.Random(SEED)
    rows = write_input(tmp_path / "files", files, lines)
    with LocalBroker(tmp_path / "data") as broker:
        create_topic(broker.bootstrap, TOPIC, 3)
        victim = Victim(broker, tmp_path)
        try:
            for _ in range(kills):
                before = sum(end_offsets(broker.bootstrap, TOPIC))
                victim.start()
                wait_for(
                    victim,
                    lambda before=before: sum(end_offsets(broker.bootstrap, TOPIC)) > before,  # type: ignore[misc]
                    START_S,
                    "the first row",
                )
                if chance.random() < 0.5:  # let it through, so that the next batch is hit as well as the first
                    batches = done_batches(tmp_path)
                    wait_for(
                        victim,
                        lambda batches=batches: done_batches(tmp_path) > batches,  # type: ignore[misc]
                        START_S,
                        "the first batch",
                    )
                # Somewhere in that batch or the next, in tasks or in the commit: every moment has to do.
                time.sleep(chance.uniform(0, 1.0))
                victim.kill()
            victim.start()
            wait_for(victim, lambda: False, FINISH_S, "the end of the input")
            assert victim.ended() == 0, f"the driver failed:\n{victim.last_words()}"
            assert committed(broker.bootstrap, TOPIC) == rows
        finally:
            victim.kill()
