"""A broker that is killed at every step between park, due and release: no delayed message is lost, doubled or early.

The broker kills itself in the middle of writing a note, or is killed from outside at any time, and is started again,
while clients send messages that are due soon, cancel some and move some. The checker judges what they saw. The seed is
printed with a failure; HEADRACE_KILL_SEED=n repeats it.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from sim.clients.orders import Known, Order, cancel, delay, deliver_at, move
from sim.history.invariants import Limits
from sim.history.recorder import Recorder
from sim.history.verdict import judge
from tests.crash import doomed
from tests.crash.doomed import KINDS, STEPS
from tests.crash.victim import PATIENCE_S, Victim
from tests.recorded_clients import RecordedConsumer, RecordedProducer, read_everything

TOPIC, PARTITIONS = "reminders", 2
LATEST_MS = 1500  # the longest delay
LIMITS = Limits(released_within_s=10, clock_error_ms=50)
QUICK = {
    "linger_ms": 2,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 100,
    "retry_backoff_ms": 20,
    "log_level": 0,  # losing the broker is expected here
}


class Load:
    """The clients, and what they do in one piece of work."""

    def __init__(self, bootstrap: str, chance: random.Random, recorder: Recorder) -> None:
        self._bootstrap = bootstrap
        self._chance = chance
        self._recorder = recorder
        recorder.happened("clock", "clock", details={"wall_ms": int(time.time() * 1000)})
        self._sender = RecordedProducer(recorder, "sender/1", bootstrap, **QUICK)
        # One change per batch and attempt: a refusal is about this change, and proves that nothing happened.
        once = {"enable_idempotence": False, "message_send_max_retries": 0, "batch_num_messages": 1}
        self._changer = RecordedProducer(recorder, "changer/1", bootstrap, **QUICK, **once)
        self._reader = RecordedConsumer(recorder, "reader/1", bootstrap, "readers", log_level=0)
        self._reader.subscribe(TOPIC)

    def work(self) -> None:
        for _ in range(self._chance.randint(1, 5)):
            partition = self._chance.randrange(PARTITIONS)
            order = self._time() if self._chance.random() < 0.8 else None
            self._sender.send(TOPIC, b"x" * self._chance.randint(0, 50), partition=partition, order=order)
        recent = self._sender.stored[-20:]
        if recent and self._chance.random() < 0.5:
            target = self._chance.choice(recent)
            change = self._change(target)
            self._changer.send(TOPIC, partition=int(target.tp.rpartition("-")[2]), order=change)
        self._changer.client.poll(0)
        self._reader.poll(timeout_s=0.02)

    def _time(self) -> Order:
        if self._chance.random() < 0.3:
            return deliver_at(int(time.time() * 1000) + self._chance.randint(-100, LATEST_MS))
        return delay(self._chance.randint(0, LATEST_MS))

    def _change(self, target: Known) -> Order:
        return cancel(target) if self._chance.random() < 0.5 else move(target, self._time())

    def end(self) -> None:
        """Until everything is out."""
        assert self._sender.flush(PATIENCE_S) == 0, "records were still waiting a minute after the restart"
        assert self._changer.flush(PATIENCE_S) == 0
        time.sleep(LATEST_MS / 1000)
        self._recorder.happened("broker", "heal")
        until = time.monotonic() + LIMITS.released_within_s + 1
        while time.monotonic() < until:
            self._reader.poll(timeout_s=0.1)
        self._reader.close()
        read_everything(self._recorder, self._bootstrap, {TOPIC: PARTITIONS})


def lives() -> Iterator[tuple[str, str]]:
    return ((kind, step) for kind in KINDS for step in STEPS)


def dies_by_itself(victim: Victim, load: Load, kind: str, step: str) -> None:
    victim.program = [sys.executable, str(Path(doomed.__file__)), kind, step]
    victim.spawn()
    give_up_at = time.monotonic() + PATIENCE_S
    while not victim.has_died():
        assert time.monotonic() < give_up_at, f"the broker did not come to the step {kind}, {step}"
        load.work()
    victim.kill()


def test_a_broker_killed_at_every_step_of_parking_changing_and_releasing_loses_and_doubles_nothing(
    tmp_path: Path, soaking: bool, remark: Callable[[str], None]
) -> None:
    seed = int(os.environ.get("HEADRACE_KILL_SEED", "1"))
    recorder = Recorder(time.monotonic_ns)
    kills = 0
    with Victim(tmp_path) as victim:
        usual = victim.program
        victim.start()
        admin = AdminClient({"bootstrap.servers": victim.bootstrap, "log_level": 0})
        topic = NewTopic(TOPIC, PARTITIONS, 1, config={"headrace.delay.enable": "true"})
        admin.create_topics([topic])[TOPIC].result(PATIENCE_S)
        load = Load(victim.bootstrap, random.Random(seed), recorder)
        for kind, step in [*lives()] * (10 if soaking else 1):
            victim.kill()
            dies_by_itself(victim, load, kind, step)
            kills += 1
        victim.program = usual
        victim.start()
        load.end()
        verdict = judge(recorder.events, LIMITS)
        assert not verdict.violations, f"seed {seed}: {verdict}\n{victim.log_tail()}"
    counts = verdict.counts
    assert counts["delayed messages"] > 50
    remark(
        f"killed {kills} times at a chosen step: {counts['delayed messages']} delayed messages, "
        f"{counts['releases seen']} releases read back, none early, none twice, none lost"
    )
