"""What the clients of the section "delays" share: messages that know when they are due, and what came of them."""

from __future__ import annotations

import pytest

from bench.delayed.servers import pending_told
from bench.delayed.work import Arrival, Batch, Collection, Task, due_ms_of, number_of, parse, wrong

DUE_MS = 1_800_000_000_000


def test_messages_know_their_number_and_due_time_and_have_the_size_asked_for() -> None:
    batch = Batch("steady", 6, DUE_MS, per_second=2000, size=100)
    messages = list(batch.messages())
    assert [due_ms - DUE_MS for _, due_ms, _ in messages] == [0, 0, 1, 1, 2, 2]
    assert {len(payload) for *_, payload in messages} == {100}
    assert [(number_of(payload), due_ms_of(payload)) for *_, payload in messages] == [
        (number, due_ms) for number, due_ms, _ in messages
    ]


def test_without_a_rate_all_are_due_at_once() -> None:
    assert {due_ms for _, due_ms, _ in Batch("burst", 1000, DUE_MS).messages()} == {DUE_MS}


def test_lateness_is_from_the_due_time_to_the_arrival_and_to_the_servers_stamp() -> None:
    payloads = [payload for *_, payload in Batch("burst", 4, DUE_MS).messages()]
    collection = Collection(4)
    collection.take(Arrival(DUE_MS + 10.0, payloads[:3], [DUE_MS + 5.0] * 3))
    assert not collection.complete
    collection.take(Arrival(DUE_MS + 40.0, payloads[3:], [DUE_MS + 30.0]))
    assert collection.complete
    told = collection.summary()
    assert [told[f"late.{label}"] for label in ("p50", "p99", "max")] == [10, 40, 40]
    assert [told[f"stamped.{label}"] for label in ("p50", "p99", "max")] == [5, 30, 30]
    assert told["out_seconds"] == pytest.approx(0.04)
    assert wrong(told) is None


def test_what_is_missing_came_twice_or_came_early_is_told() -> None:
    payloads = [payload for *_, payload in Batch("burst", 5, DUE_MS).messages()]
    collection = Collection(5)
    collection.take(Arrival(DUE_MS - 1.0, payloads[:1], [DUE_MS]))
    collection.take(Arrival(DUE_MS + 1.0, [*payloads[1:3], payloads[2]], [DUE_MS] * 3))
    assert wrong(collection.summary()) == "2 missing, 1 doubled, 1 early"
    assert wrong(Collection(7).summary()) == "7 missing"


def test_a_client_reads_the_task_that_the_section_gave_it() -> None:
    task = Task("load", "127.0.0.1:9092", "a-topic", Batch("burst", 10, DUE_MS, 5), 2.5)
    assert parse(task.arguments()) == task


def test_pending_messages_of_all_topics_are_counted_in_the_metrics() -> None:
    text = "".join(
        f"{line}\n"
        for line in (
            "# TYPE headrace_delayed_pending gauge",
            'headrace_delayed_pending{topic="a"} 3',
            'headrace_delayed_pending{topic="b"} 4',
            "# TYPE headrace_other gauge",
            "headrace_other 9",
        )
    )
    assert pending_told(text) == 7
