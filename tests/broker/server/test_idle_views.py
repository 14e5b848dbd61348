"""A view that readers share goes when nobody needs it, and stays while somebody does."""

from __future__ import annotations

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.model.tag_filter import TagFilter
from headrace.sdk import Consumer, Producer, Schedules
from headrace.sdk.tag_view import shared_view
from headrace.testing.local_broker import LocalBroker
from headrace.testing.plugin import BrokerFactory

LOOK_S = 61  # of eight within headrace.view.idle.ms
SETTINGS = {"headrace.view.idle.ms": "480000"}


def views(broker: LocalBroker) -> set[str]:
    topics = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10).topics
    return {name for name in topics if name not in ("t", "__consumer_offsets")}


@pytest.fixture
def tagged(broker_factory: BrokerFactory) -> LocalBroker:
    broker = broker_factory(SETTINGS)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", 1, 1, config={"headrace.tags.enable": "true"})])["t"].result(10)
    own = NewTopic("mine", -1, -1, config=TagFilter(("a",)).settings("t"))
    admin.create_topics([own])["mine"].result(10)
    with Producer(broker.bootstrap) as producer:
        producer.send("t", b"v", tags=["a"])
    return broker


def commit(broker: LocalBroker) -> str:
    """A group reads by the tag `a`, and commits."""
    with Consumer(broker.bootstrap, "t", group="g", tags=["a"]) as reader:
        assert len(reader.poll(timeout_s=10)) == 1
        reader.commit()
    return TagFilter(("a",)).view_name("t")


def read(broker: LocalBroker) -> str:
    """Somebody reads by the tag `b`, and commits nothing."""
    name = shared_view({"bootstrap.servers": broker.bootstrap}, "t", TagFilter(("b",)))
    assert name is not None
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False}
    )
    reader.assign([confluent_kafka.TopicPartition(name, 0, 0)])
    assert reader.poll(0.7) is None
    reader.close()
    return name


def test_a_shared_view_goes_some_time_after_its_last_reader(tagged: LocalBroker) -> None:
    kept, gone = commit(tagged), read(tagged)
    assert views(tagged) == {"mine", kept, gone}
    for _ in range(6):
        tagged.clock.advance(seconds=LOOK_S)
    assert views(tagged) == {"mine", kept, gone}
    for _ in range(50):  # a busy broker may sleep through an advance
        tagged.clock.advance(seconds=LOOK_S)
        if gone not in views(tagged):
            break
    assert views(tagged) == {"mine", kept}


def test_the_view_by_which_clients_list_what_is_pending_goes_like_others(tagged: LocalBroker) -> None:
    admin = AdminClient({"bootstrap.servers": tagged.bootstrap})
    admin.create_topics([NewTopic("d", 1, 1, config={"headrace.delay.enable": "true"})])["d"].result(10)
    own = NewTopic("d.mine", -1, -1, config={"headrace.view.of": "d", "headrace.view.pending": "true"})
    admin.create_topics([own])["d.mine"].result(10)
    with Schedules(tagged.bootstrap) as schedules:
        assert schedules.list("d") == []
    assert views(tagged) == {"mine", "d", "d.mine", "d.pending"}
    for _ in range(50):  # a busy broker may sleep through an advance
        tagged.clock.advance(seconds=LOOK_S)
        if "d.pending" not in views(tagged):
            break
    assert views(tagged) == {"mine", "d", "d.mine"}
    with Schedules(tagged.bootstrap) as schedules:
        assert schedules.list("d") == []


def test_a_view_that_is_read_now_and_then_stays(tagged: LocalBroker) -> None:
    name = read(tagged)
    for _ in range(4):
        for _ in range(6):
            tagged.clock.advance(seconds=LOOK_S)
        read(tagged)
    assert views(tagged) == {"mine", name}


def test_a_jump_of_the_clock_deletes_nothing(tagged: LocalBroker) -> None:
    name = read(tagged)
    tagged.clock.advance(days=10)
    assert views(tagged) == {"mine", name}
