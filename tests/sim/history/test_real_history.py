"""Real clients on a real broker: the checker has nothing to say against what they saw.

The clients run their own threads; the test drives them in turn, so that it ends when everything has been seen and not
after a time. How long a rebalance takes on a busy machine is no promise, hence the wide limits.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.local_broker import LocalBroker
from headrace.testing.plugin import BrokerFactory
from sim.history.__main__ import main
from sim.history.event import parse_all
from sim.history.invariants import Limits
from sim.history.recorder import Recorder
from sim.history.verdict import judge
from tests.recorded_clients import RecordedConsumer, RecordedProducer, read_everything

TOPIC, PARTITIONS = "orders", 4
PLACES = [(TOPIC, partition) for partition in range(PARTITIONS)]
WIDE = Limits(stable_within_s=120, seen_within_s=120)
PATIENCE_S = 60.0


@pytest.fixture
def prompt_broker(broker_factory: BrokerFactory) -> LocalBroker:
    """A broker whose groups do not wait for more members before they begin."""
    broker = broker_factory({"group.initial.rebalance.delay.ms": "0"})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)
    return broker


def drive(members: Sequence[RecordedConsumer], seen: set[str | None], until: Callable[[], bool]) -> None:
    """Let the members read and commit in turn."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not until():
        assert time.monotonic() < give_up_at, f"not reached within {PATIENCE_S:g} s; {len(seen)} messages were seen"
        for member in members:
            records = member.poll(300, 0.02)
            seen.update(record.uid for record in records)
            if records:
                member.commit()


def produce(producers: Sequence[RecordedProducer], count: int) -> set[str]:
    uids = set()
    for number in range(count):
        producer = producers[number % len(producers)]
        headers = [("number", str(number).encode())] if number % 3 == 0 else None
        key = f"key-{number % 50}".encode() if number % 2 else None
        uids.add(producer.send(TOPIC, b"x" * (number % 200), key, number % PARTITIONS, headers))
    return uids


def test_two_members_and_a_rebalance_leave_a_clean_history(prompt_broker: LocalBroker, tmp_path: Path) -> None:
    address = prompt_broker.bootstrap
    path = tmp_path / "history.jsonl"
    with path.open("w") as sink:
        recorder = Recorder(time.monotonic_ns, sink)
        producers = [RecordedProducer(recorder, f"p{number}/1", address) for number in (1, 2)]
        uids = produce(producers, 1500)
        seen: set[str | None] = set()
        first = RecordedConsumer(recorder, "c1/1", address, "shop")
        first.subscribe(TOPIC)
        drive([first], seen, lambda: len(seen) >= 300)

        second = RecordedConsumer(recorder, "c2/1", address, "shop")
        second.subscribe(TOPIC)
        uids |= produce(producers, 1500)
        drive([first, second], seen, lambda: bool(second.client.assignment()) and seen >= uids)
        first.committed(*PLACES)
        second.ask_end(*PLACES[0])

        first.close()
        uids |= produce(producers, 500)
        for producer in producers:
            producer.close()
        drive([second], seen, lambda: seen >= uids)
        second.committed(*PLACES)
        second.close()
        recorder.happened("faults", "heal")
        read_everything(recorder, address, {TOPIC: PARTITIONS})

    verdict = judge(recorder.events, WIDE)
    assert not verdict.violations, str(verdict)
    assert verdict.counts["messages read"] == 3500
    assert len({event.epoch for event in recorder.events if event.f == "assign"}) >= 3, "there was no rebalance"
    assert [event.line() for event in parse_all(path.read_text().splitlines())] == [
        event.line() for event in recorder.events
    ]


def test_a_killed_broker_leaves_a_clean_history(prompt_broker: LocalBroker) -> None:
    address = prompt_broker.bootstrap
    sink = io.StringIO()
    recorder = Recorder(time.monotonic_ns, sink)
    producer = RecordedProducer(recorder, "p/1", address, linger_ms=1)
    member = RecordedConsumer(recorder, "c/1", address, "shop")
    member.subscribe(TOPIC)
    seen: set[str | None] = set()
    uids: set[str] = set()
    for _ in range(2):
        uids |= produce([producer], 400)
        enough = len(uids) // 2
        drive([member], seen, lambda enough=enough: len(seen) >= enough)
        uids |= produce([producer], 100)
        prompt_broker.kill()
        recorder.happened("faults", "move")
        uids |= produce([producer], 100)
        prompt_broker.restart()
    recorder.happened("faults", "heal")
    assert producer.flush() == 0
    drive([member], seen, lambda: seen >= uids)
    member.committed(*PLACES)
    producer.close()
    member.close()
    read_everything(recorder, address, {TOPIC: PARTITIONS})

    verdict = judge(recorder.events, WIDE)
    assert not verdict.violations, str(verdict)
    assert verdict.counts["messages read"] == 1200


def test_a_message_that_vanishes_from_a_real_history_is_missed(
    prompt_broker: LocalBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = Recorder(time.monotonic_ns)
    producer = RecordedProducer(recorder, "p/1", prompt_broker.bootstrap)
    produce([producer], 100)
    producer.close()
    read_everything(recorder, prompt_broker.bootstrap, {TOPIC: PARTITIONS})
    for event in recorder.events:
        if event.f == "final" and event.tp == f"{TOPIC}-2" and event.records:
            del event.records[7]
    path = tmp_path / "history.jsonl"
    path.write_text("".join(event.line() + "\n" for event in recorder.events))

    assert judge(recorder.events).broken == {"P1"}
    assert main([str(path)]) == 1
    assert "p/1/31 was acknowledged at offset 7 of orders-2 and is not in the final read" in capsys.readouterr().out
