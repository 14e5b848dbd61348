"""The clients of the bench's sections "delays" and "views" do their work with a real broker, and check what comes."""

from __future__ import annotations

import time

import pytest

from bench import topics
from bench.delayed import headrace_client
from bench.delayed.servers import DELAYS
from bench.delayed.work import Batch, Task, wrong
from bench.tagged import client
from bench.tagged.layout import GOLD, LAYOUTS, Layout
from bench.tagged.section import TAGS
from headrace.testing.local_broker import LocalBroker

PATIENCE_S = 30.0
COUNT = 3000


def delayed(broker: LocalBroker, verb: str, batch: Batch) -> Task:
    return Task(verb, broker.bootstrap, "later", batch, PATIENCE_S)


def test_delayed_messages_are_loaded_and_all_arrive_once_and_not_early(
    broker: LocalBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    topics.create(broker.bootstrap, "later", settings={DELAYS: "true"})
    batch = Batch("steady", COUNT, due_ms=time.time_ns() // 1_000_000 + 2000, per_second=COUNT)
    assert headrace_client.load(delayed(broker, "load", batch))["loaded"] == COUNT
    told = headrace_client.read(delayed(broker, "read", batch))
    assert capsys.readouterr().out == "ready\n"
    assert wrong(told) is None
    assert told["late.p50"] >= 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_view_is_read_to_its_end_and_moves_fewer_bytes_than_its_topic(broker: LocalBroker, layout: Layout) -> None:
    topics.create(broker.bootstrap, "tagged", settings=TAGS)
    loaded = client.load(broker.bootstrap, "tagged", COUNT, layout)
    topics.create_view(broker.bootstrap, "gold", "tagged", GOLD.decode())
    everything, view = (client.read(broker.bootstrap, name, PATIENCE_S) for name in ("tagged", "gold"))
    assert everything["records"] == COUNT
    assert view["records"] == loaded["matching"] > 0
    assert view["bytes"] < everything["bytes"]


def test_readers_wait_for_what_a_producer_sends_beside_a_measurement(broker: LocalBroker) -> None:
    topics.create(broker.bootstrap, "tagged", settings=TAGS)
    sent = client.trickle(broker.bootstrap, ["tagged"], 0.5, 200)
    topics.create_view(broker.bootstrap, "gold", "tagged", GOLD.decode())
    assert sent["records"] > 0
    assert client.scan(broker.bootstrap, "gold", 1.0)["scans"] > 0
    assert client.follow(broker.bootstrap, ["tagged", "gold"], 0.5) == {"records": 0}
