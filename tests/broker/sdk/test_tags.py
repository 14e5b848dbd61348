"""Consumers with tags: through a shared view where the broker filters, by themselves elsewhere; the same messages."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.model.tag_filter import MATCHES, TagFilter
from headrace.sdk import AsyncConsumer, BadSetting, Consumer, Producer
from headrace.testing.local_broker import LocalBroker

TAGS = [(), ("red",), ("red", "big"), ("green",), ("big",), ("green", "big")]


def topic(broker: LocalBroker, *, tagged: bool) -> str:
    name = "tagged" if tagged else "plain"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {"headrace.tags.enable": "true"} if tagged else {}
    admin.create_topics([NewTopic(name, 2, 1, config=config)])[name].result(30)
    with Producer(broker.bootstrap) as producer:
        for at in range(60):
            producer.send(name, b"%d" % at, partition=at % 2, tags=TAGS[at % 6])
    return name


def read(reader: Consumer, count: int) -> list[int]:
    found: list[int] = []
    for _ in range(100):
        found += [int(message.text) for message in reader.poll(timeout_s=0.2)]
        if len(found) >= count:
            break
    return sorted(found)


@pytest.mark.parametrize("tagged", [True, False])
@pytest.mark.parametrize("match", MATCHES)
def test_the_same_messages_come_wherever_they_are_filtered(broker: LocalBroker, tagged: bool, match: str) -> None:
    name, filter_ = topic(broker, tagged=tagged), TagFilter(("red", "big"), match)
    expected = [at for at in range(60) if filter_.accepts(TAGS[at % 6])]
    with Consumer(broker.bootstrap, name, group="g", tags=["red", "big"], match=match) as reader:
        assert read(reader, len(expected)) == expected
        reader.commit()
    with Consumer(broker.bootstrap, name, group="g", tags=["big", "red"], match=match) as reader:
        assert reader.poll(timeout_s=1) == []
    topics = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10).topics
    assert [each for each in topics if ".view." in each] == ([filter_.view_name(name)] if tagged else [])


@pytest.mark.parametrize("tags", [["red"], ["nobody"]])
def test_a_group_reaches_the_end_of_a_topic_whose_last_messages_do_not_match(
    broker: LocalBroker, tags: list[str]
) -> None:
    name = topic(broker, tagged=True)
    view = TagFilter(tuple(tags)).view_name(name)
    with Consumer(broker.bootstrap, name, group="g", tags=tags) as reader:
        read(reader, 20 if tags == ["red"] else 1)
        for _ in range(20):
            reader.poll(timeout_s=0.1)
        reader.commit()
    asked = ConsumerGroupTopicPartitions("g", [TopicPartition(view, at) for at in (0, 1)])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    found = admin.list_consumer_group_offsets([asked])["g"].result(10).topic_partitions
    assert [each.offset for each in found] == [30, 30]


def test_an_asyncio_consumer_filters_too(broker: LocalBroker) -> None:
    name = topic(broker, tagged=True)

    async def story() -> list[int]:
        async with AsyncConsumer(broker.bootstrap, name, group="g", tags=["green"]) as reader:
            found: list[int] = []
            while len(found) < 20:
                found += [int(message.text) for message in await reader.poll()]
            return sorted(found)

    found = asyncio.run(asyncio.wait_for(story(), 30))
    assert found == [at for at in range(60) if "green" in TAGS[at % 6]]


@pytest.mark.parametrize(
    ("tags", "match", "words"),
    [(["a,b"], "any", "comma"), ([""], "any", "empty"), ([], "none", "at least one"), (["a"], "some", "choose from")],
)
def test_a_filter_that_is_none_is_refused_before_anything_is_asked(tags: list[str], match: str, words: str) -> None:
    with pytest.raises(BadSetting, match=words):
        Consumer("127.0.0.1:1", "t", group="g", tags=tags, match=match)


def test_tags_need_topics_by_name() -> None:
    with pytest.raises(BadSetting, match="by name"):
        Consumer("127.0.0.1:1", "^t.*", group="g", tags=["a"])
