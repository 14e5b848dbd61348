"""SIGKILL while a share group works: every record is handled, and none is handed out after it was accepted.

Three members fetch and acknowledge in every way that the protocol has, and a producer goes on writing, while the broker
is killed between deliveries, acknowledgements and writes of the state. HEADRACE_KILL_SEED=n repeats one run.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer

from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from tests.broker.api.share_client import ACCEPT, RELEASE, TOPIC, ShareClient, acquired

from .victim import PATIENCE_S, Victim

KILLS, SOAK_KILLS = 4, 60
SETTINGS = "group.share.delivery.count.limit=10\nshare.coordinator.state.topic.num.partitions=2\n"
LOST = (ConnectionError, OSError, AssertionError)


class Work:
    """What the group has done, as its members were told."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.lock = threading.Lock()
        self.accepted: dict[int, float] = {}  # by offset: when that was confirmed
        self.wrong: list[str] = []
        self.deliveries = 0
        self.over = threading.Event()

    def delivered(self, offsets: list[int], asked_at: float) -> None:
        with self.lock:
            self.deliveries += len(offsets)
            for offset in offsets:
                if self.accepted.get(offset, asked_at) < asked_at:
                    self.wrong.append(f"{offset} was handed out after it was accepted")

    def confirmed(self, offsets: list[int]) -> None:
        now = time.monotonic()
        with self.lock:
            for offset in offsets:
                self.accepted.setdefault(offset, now)


def keep_working(work: Work, member: str, topic_id: object, seed: int) -> None:
    chance = random.Random(f"{seed} {member}")
    while not work.over.is_set():
        try:
            with ShareClient(work.port, member, version=chance.choice([1, 2])) as client:
                client.topic_id = topic_id  # type: ignore[assignment]
                for _ in range(chance.randrange(1, 40)):
                    if work.over.is_set():
                        break
                    one_turn(work, client, chance)
                if chance.random() < 0.5:
                    client.close_session()
        except LOST:
            time.sleep(0.02)


def one_turn(work: Work, client: ShareClient, chance: random.Random) -> None:
    asked_at = time.monotonic()
    answer = client.fetch(wait_ms=50, most=chance.choice([1, 20, 300]), mode=chance.choice([0, 1]))
    if answer.error_code:
        raise ConnectionError(answer.error_code)
    ranges = acquired(answer)
    work.delivered([at for first, last, _ in ranges for at in range(first, last + 1)], asked_at)
    if not ranges or chance.random() < 0.05:
        return  # it works on them until its session ends
    acks = [(first, last, RELEASE if chance.random() < 0.02 else ACCEPT) for first, last, _ in ranges]
    offsets = [at for first, last, kind in acks if kind == ACCEPT for at in range(first, last + 1)]
    if chance.random() < 0.5:
        if client.code(*acks) == 0:
            work.confirmed(offsets)
        return
    asked_at = time.monotonic()
    answer = client.fetch(*acks, most=1)
    parts = [part for topic in answer.responses for part in topic.partitions]
    if answer.error_code == 0 and parts and parts[0].acknowledge_error_code == 0:
        work.confirmed(offsets)
    work.delivered([at for first, last, _ in acquired(answer) for at in range(first, last + 1)], asked_at)


def begin(victim: Victim) -> ShareClient:
    client = ShareClient(victim.port)
    client.create_topic()
    client.initialize()
    return client


def await_all(work: Work, produced: int) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while len(work.accepted) < produced and not work.wrong:
        missing = [at for at in range(produced) if at not in work.accepted]
        assert time.monotonic() < give_up_at, f"{len(missing)} of {produced} records are lost, such as {missing[:5]}"
        time.sleep(0.05)


def test_nothing_is_lost_and_nothing_that_was_accepted_comes_back(
    tmp_path: Path, soaking: bool, remark: Callable[[str], None]
) -> None:
    seed = int(os.environ.get("HEADRACE_KILL_SEED", "1"))
    print(f"seed {seed} (HEADRACE_KILL_SEED={seed} repeats it)")
    chance, kills = random.Random(seed), SOAK_KILLS if soaking else KILLS
    with Victim(tmp_path, SETTINGS) as victim:
        victim.start()
        with begin(victim) as client:
            topic_id = client.topic_id
        done = Work(victim.port)
        members = [
            threading.Thread(target=keep_working, args=[done, member, topic_id, seed], daemon=True)
            for member in ("ann", "bob", "cid")
        ]
        for member in members:
            member.start()
        delivered: list[Message | None] = []
        settings = {"bootstrap.servers": victim.bootstrap, "enable.idempotence": True, "linger.ms": 2, "log_level": 0}
        producer = Producer(settings | {"reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20})
        produced = 0
        try:
            for _ in range(kills):
                until = time.monotonic() + chance.uniform(0.3, 1.2)
                while time.monotonic() < until:
                    for _ in range(20):
                        producer.produce(TOPIC, b"%d" % produced, on_delivery=lambda error, _: delivered.append(error))
                        produced += 1
                    producer.poll(0.01)
                victim.kill()
                victim.start()
            assert producer.flush(PATIENCE_S) == 0
            assert [error for error in delivered if error is not None] == []
            await_all(done, produced)
        finally:
            done.over.set()
            for member in members:
                member.join(PATIENCE_S)
        assert done.wrong == [], f"{len(done.wrong)} times: {done.wrong[:5]}"
        with ShareClient(victim.port) as client:
            client.topic_id = topic_id
            assert client.stored().start_offset == produced
            assert ErrorCode.none == client.stored().error_code
    remark(f"killed {kills} times: {produced:,} records handled in {done.deliveries:,} deliveries")
