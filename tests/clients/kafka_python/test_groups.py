"""Consumer groups of kafka-python members: shares, rebalances, static members, patterns."""

import re
import threading
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.clients.kafka_python.conftest import NewConsumer, NewProducer, NewTopic
from tests.clients.kafka_python.reading import produce, read, settle, split_evenly, subscribe
from tests.clients.patience import until
from tests.clients.stories import story


@story("group-split")
def test_three_members_split_six_partitions_and_read_everything_once(
    new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer, unique
) -> None:
    topic, group = new_topic(partitions=6), unique("group")
    members = [new_consumer(group_id=group) for _ in range(3)]
    for member in members:
        subscribe(member, [topic])
    settle(members, split_evenly(6))
    producer = new_producer()
    for number in range(60):
        producer.send(topic, b"%d" % number, partition=number % 6)
    producer.flush(30)
    seen: list[int] = []

    def all_seen() -> bool:
        for member in members:
            for batch in member.poll(timeout_ms=50).values():
                seen.extend(int(record.value) for record in batch)
        return len(seen) >= 60

    until("60 messages reach the group", all_seen)
    assert sorted(seen) == list(range(60))


@pytest.mark.parametrize(
    "assignor",
    [
        pytest.param(RangePartitionAssignor, marks=story("range")),
        pytest.param(RoundRobinPartitionAssignor, marks=story("roundrobin")),
        pytest.param(StickyPartitionAssignor, marks=story("sticky")),
        pytest.param(CooperativeStickyAssignor, marks=story("cooperative-sticky")),
    ],
)
def test_assignor_shares_two_topics_as_members_come_and_go(
    assignor: Any, new_topic: NewTopic, new_consumer: NewConsumer, unique
) -> None:
    topics, group = [new_topic(partitions=2), new_topic(partitions=2)], unique("group")
    members: list[KafkaConsumer] = []
    for _ in range(2):
        members.append(new_consumer(group_id=group, partition_assignment_strategy=[assignor]))
        subscribe(members[-1], topics)
        settle(members, split_evenly(4))
    members[1].close()
    settle(members[:1], split_evenly(4))


@story("group-leave")
def test_member_that_leaves_is_replaced_and_one_that_joins_gets_a_share(
    new_topic: NewTopic, new_consumer: NewConsumer, unique
) -> None:
    topic, group = new_topic(partitions=4), unique("group")
    stays, leaves = new_consumer(group_id=group), new_consumer(group_id=group)
    for member in (stays, leaves):
        subscribe(member, [topic])
    settle([stays, leaves], split_evenly(4))
    leaves.close()
    settle([stays], split_evenly(4))
    comes = new_consumer(group_id=group)
    subscribe(comes, [topic])
    settle([stays, comes], split_evenly(4))


@story("static-member")
def test_static_member_comes_back_to_its_partitions_without_a_rebalance(
    admin: KafkaAdminClient, new_topic: NewTopic, new_consumer: NewConsumer, unique
) -> None:
    topic, group = new_topic(partitions=4), unique("group")
    stays = new_consumer(group_id=group, group_instance_id="stays", session_timeout_ms=20_000)
    subscribe(stays, [topic])
    settle([stays], split_evenly(4))
    # Second to join, so that it says nothing of partitions it had: a restarted member that says something else than
    # before is a reason for the broker to rebalance.
    restarts = new_consumer(group_id=group, group_instance_id="restarts", session_timeout_ms=20_000)
    subscribe(restarts, [topic])
    kept, moved = settle([stays, restarts], split_evenly(4))
    generation = stays.group_metadata().generation_id
    restarts.close()
    again = new_consumer(group_id=group, group_instance_id="restarts", session_timeout_ms=20_000)
    subscribe(again, [topic])
    assert settle([stays, again], split_evenly(4)) == [kept, moved]
    assert stays.group_metadata().generation_id == again.group_metadata().generation_id == generation


@story("regex")
def test_regex_subscription_finds_a_topic_made_later(
    new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer, unique
) -> None:
    prefix = unique("family")
    consumer = new_consumer()
    consumer.subscribe(pattern=f"^{re.escape(prefix)}-.*")
    new_topic(name=f"{prefix}-one")
    settle([consumer], split_evenly(1))
    new_topic(name=f"{prefix}-two")
    new_topic(name=f"not-{prefix}")
    settle([consumer], split_evenly(2))
    produce(new_producer(), f"{prefix}-two", [b"found"])
    assert read(consumer, 1)[0].value == b"found"


@story("partition-growth")
def test_group_takes_over_added_partitions(
    admin: KafkaAdminClient, new_topic: NewTopic, new_consumer: NewConsumer
) -> None:
    topic = new_topic(partitions=1)
    consumer = new_consumer()
    subscribe(consumer, [topic])
    settle([consumer], split_evenly(1))
    admin.create_partitions({topic: 3})
    settle([consumer], split_evenly(3))


@story("commit")
@pytest.mark.parametrize("kind", ["sync", "async", "on-close"])
def test_next_member_resumes_where_the_last_one_committed(
    kind: str, new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer, unique
) -> None:
    topic, group = new_topic(), unique("group")
    produce(new_producer(), topic, [b"%d" % number for number in range(10)])
    first = new_consumer(group_id=group, enable_auto_commit=kind == "on-close")
    subscribe(first, [topic])
    read(first, 4)
    if kind == "sync":
        first.commit()
    elif kind == "async":
        committed = threading.Event()
        first.commit_async(callback=lambda *_: committed.set())
        until("the commit is confirmed", lambda: first.poll(timeout_ms=20, max_records=1) or committed.is_set())
    first.close()
    second = new_consumer(group_id=group)
    subscribe(second, [topic])
    assert read(second, 1)[0].value == b"4"


@story("commit")
def test_committed_offset_and_metadata_are_returned(new_topic: NewTopic, new_consumer: NewConsumer) -> None:
    topic = new_topic(partitions=2)
    consumer = new_consumer()
    places = [TopicPartition(topic, partition) for partition in range(2)]
    consumer.assign(places)
    consumer.commit({places[0]: OffsetAndMetadata(42, "über", -1)})
    assert consumer.committed(places[0]) == 42
    assert consumer.committed(places[0], metadata=True).metadata == "über"
    assert consumer.committed(places[1]) is None
