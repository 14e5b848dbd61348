"""SIGKILL during heavy produce: every acknowledged record is there, in order, and without duplicates.

Each round has a seed, printed with a failure. It determines the load, when the broker is killed, and whether it is
killed again during recovery. The rounds share one data folder, so every round also recovers the data of the rounds
before it. HEADRACE_KILL_SEED=n repeats one round.
"""

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from .ledger import Ledger, record
from .unflushed import unflushed_bytes
from .victim import PATIENCE_S, Victim

ROUNDS = 5
SOAK_ROUNDS = 100
GIB = 1 << 30


def rounds(soaking: bool) -> list[int]:
    one = os.environ.get("HEADRACE_KILL_SEED")
    return [int(one)] if one else list(range(SOAK_ROUNDS if soaking else ROUNDS))


def new_producer(bootstrap: str) -> Producer:
    return Producer({
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "linger.ms": 2,
        "queue.buffering.max.messages": 50_000,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 100,
        "retry.backoff.ms": 20,
        "log_level": 0,  # losing the broker is expected here
    })  # fmt: skip


def produce_for(seconds: float, producer: Producer, topic: str, partitions: int, ledger: Ledger) -> None:
    """Send as fast as possible."""
    until = time.monotonic() + seconds
    partition = 0
    while time.monotonic() < until:
        for _ in range(500):
            partition = (partition + 1) % partitions
            send(producer, topic, record(ledger.sent[partition]), ledger, partition)
        producer.poll(0)


def send(producer: Producer, topic: str, value: bytes, ledger: Ledger, partition: int = 0) -> None:
    """Hand one record to the producer; waits while its queue is full, since the broker is alive and accepts records."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        try:
            producer.produce(topic, value, partition=partition, on_delivery=ledger.delivered)
        except BufferError:
            assert time.monotonic() < give_up_at, f"the broker has not accepted a record for {PATIENCE_S:g} s"
            producer.poll(0.05)
        else:
            ledger.sent[partition] += 1
            return


def kill_amid_produce(victim: Victim, seed: int) -> tuple[int, float]:
    """One round; returns the records read and the seconds that the restart took."""
    chance = random.Random(seed)
    topic, partitions = f"killed-{seed}-{chance.randrange(1 << 30)}", chance.choice([1, 3, 8])
    admin = AdminClient({"bootstrap.servers": victim.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    ledger = Ledger()
    producer = new_producer(victim.bootstrap)
    # The producer sends from its own thread, so records are in flight while the broker is killed.
    produce_for(chance.uniform(0.2, 1.5), producer, topic, partitions, ledger)
    victim.kill()
    if chance.random() < 0.3:
        victim.spawn()
        time.sleep(chance.uniform(0, 0.3))
        victim.kill()
    if chance.random() < 0.3:  # the producer is killed with the broker
        producer.purge()
        producer.flush(30)
        ledger.refused.clear()
        start_s = victim.start()
    else:
        start_s = victim.start()
        produce_for(chance.uniform(0.1, 0.5), producer, topic, partitions, ledger)
        assert producer.flush(60) == 0, "records were still waiting a minute after the restart"
        assert not ledger.refused, f"the producer could not deliver records: {ledger.refused[:3]}"
        assert ledger.acknowledged_count == sum(ledger.sent.values())
    return ledger.check(victim.bootstrap, topic), start_s


def test_acknowledged_records_survive_a_kill_in_order_and_none_twice(
    tmp_path: Path, soaking: bool, remark: Callable[[str], None]
) -> None:
    records = 0
    starts_s: list[float] = []
    with Victim(tmp_path) as victim:
        victim.start()
        for seed in rounds(soaking):
            print(f"round with seed {seed} (HEADRACE_KILL_SEED={seed} repeats it)")
            try:
                found, start_s = kill_amid_produce(victim, seed)
            except BaseException:
                print(f"the end of the broker's log:\n{victim.log_tail()}")
                raise
            records += found
            starts_s.append(start_s)
    assert records > 0
    remark(
        f"killed {len(starts_s)} times during produce: {records:,} records read back, none lost, no duplicates; "
        f"the restart took {sum(starts_s) / len(starts_s):.2f} s, at most {max(starts_s):.2f} s"
    )


def test_a_start_after_a_kill_brings_back_everything_that_was_not_flushed(
    tmp_path: Path, soaking: bool, remark: Callable[[str], None]
) -> None:
    megabytes = 2048 if soaking else 32
    with Victim(tmp_path, "headrace.flush.interval.ms=3600000\n") as victim:
        victim.start()
        ledger = Ledger()
        producer = new_producer(victim.bootstrap)
        for _ in range(megabytes):
            for _ in range(100):
                send(producer, "unflushed", b"%d %s" % (ledger.sent[0], b"." * 10_000), ledger)
            producer.poll(0)
        assert producer.flush(60) == 0
        assert ledger.acknowledged_count == megabytes * 100
        victim.kill()
        unflushed_gib = unflushed_bytes(victim.data) / GIB
        start_s = victim.start()
        assert ledger.check(victim.bootstrap, "unflushed") == megabytes * 100
        victim.stop()
        clean_start_s = victim.start()
    scan = f": {(start_s - clean_start_s) / unflushed_gib:.2f} s per GiB" if unflushed_gib > 0.03 else ""
    remark(
        f"start after a kill with {unflushed_gib:.2f} GiB not flushed: {start_s:.2f} s, after a clean stop "
        f"{clean_start_s:.2f} s{scan}"
    )
