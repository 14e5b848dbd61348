"""Consumer groups of confluent-kafka members: shares, rebalances, static members, patterns."""

import re
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.clients.confluent.conftest import NewConsumer, NewProducer, NewTopicFixture
from tests.clients.confluent.reading import partitions_of, produce, read, settle, split_evenly
from tests.clients.patience import until
from tests.clients.stories import story


@story("group-split")
def test_three_members_split_six_partitions_and_read_everything_once(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer, unique
) -> None:
    topic, group = new_topic(partitions=6), unique("group")
    members = [new_consumer(group_id=group) for _ in range(3)]
    for member in members:
        member.subscribe([topic])
    settle(members, split_evenly(6))
    producer = new_producer()
    for number in range(60):
        produce(producer, topic, [b"%d" % number], partition=number % 6)
    seen: list[int] = []

    def all_seen() -> bool:
        for member in members:
            seen.extend(int(message.value()) for message in member.consume(100, 0.05))
        return len(seen) >= 60

    until("60 messages reach the group", all_seen)
    assert sorted(seen) == list(range(60))


@pytest.mark.parametrize(
    "assignor",
    [
        pytest.param("range", marks=story("range")),
        pytest.param("roundrobin", marks=story("roundrobin")),
        pytest.param("cooperative-sticky", marks=story("cooperative-sticky")),
    ],
)
def test_assignor_shares_two_topics_as_members_come_and_go(
    assignor: str, new_topic: NewTopicFixture, new_consumer: NewConsumer, unique
) -> None:
    topics, group = [new_topic(partitions=2), new_topic(partitions=2)], unique("group")
    members: list[Consumer] = []
    for _ in range(2):
        members.append(new_consumer(group_id=group, partition_assignment_strategy=assignor))
        members[-1].subscribe(topics)
        settle(members, split_evenly(4))
    members[1].close()
    settle(members[:1], split_evenly(4))


@story("group-leave")
def test_member_that_leaves_is_replaced_and_one_that_joins_gets_a_share(
    new_topic: NewTopicFixture, new_consumer: NewConsumer, unique
) -> None:
    topic, group = new_topic(partitions=4), unique("group")
    stays, leaves = new_consumer(group_id=group), new_consumer(group_id=group)
    for member in (stays, leaves):
        member.subscribe([topic])
    settle([stays, leaves], split_evenly(4))
    leaves.unsubscribe()
    settle([stays, leaves], lambda shares: (len(shares[0]), len(shares[1])) == (4, 0))
    leaves.subscribe([topic])
    settle([stays, leaves], split_evenly(4))


MEMBER_THAT_DIES = """
import sys
from confluent_kafka import Consumer
settings = {"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "session.timeout.ms": 6000}
consumer = Consumer(settings)
consumer.subscribe([sys.argv[3]], on_assign=lambda _, held: print(len(held), flush=True))
for _ in range(3000):
    consumer.poll(0.02)
"""


@story("group-leave")
def test_partitions_of_a_member_that_dies_go_to_the_others(
    bootstrap: str, new_topic: NewTopicFixture, new_consumer: NewConsumer, unique
) -> None:
    topic, group = new_topic(partitions=4), unique("group")
    stays = new_consumer(group_id=group)
    stays.subscribe([topic])
    settle([stays], split_evenly(4))
    command = [sys.executable, "-c", MEMBER_THAT_DIES, bootstrap, group, topic]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as dies:
        settle([stays], lambda shares: len(shares[0]) == 2)
        dies.kill()
    settle([stays], split_evenly(4))


@story("group-split")
def test_two_groups_read_everything_each(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    produce(new_producer(), topic, [b"%d" % number for number in range(10)])
    for _ in range(2):
        consumer = new_consumer()
        consumer.subscribe([topic])
        assert [int(message.value()) for message in read(consumer, 10)] == list(range(10))
        consumer.commit(asynchronous=False)


@story("static-member")
def test_static_member_comes_back_to_its_partitions_without_a_rebalance(
    new_topic: NewTopicFixture, new_consumer: NewConsumer, unique
) -> None:
    topic, group = new_topic(partitions=4), unique("group")
    rebalances: list[str] = []
    stays = new_consumer(group_id=group, group_instance_id="stays", session_timeout_ms=20_000)
    stays.subscribe([topic], on_revoke=lambda *_: rebalances.append("revoked"))
    restarts = new_consumer(group_id=group, group_instance_id="restarts", session_timeout_ms=20_000)
    restarts.subscribe([topic])
    kept, moved = settle([stays, restarts], split_evenly(4))
    rebalances.clear()
    restarts.close()
    again = new_consumer(group_id=group, group_instance_id="restarts", session_timeout_ms=20_000)
    again.subscribe([topic])
    assert settle([stays, again], split_evenly(4)) == [kept, moved]
    assert rebalances == []


@story("regex")
def test_regex_subscription_finds_a_topic_made_later(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer, unique
) -> None:
    prefix = unique("family")
    consumer = new_consumer()
    consumer.subscribe([f"^{re.escape(prefix)}-.*"])
    new_topic(name=f"{prefix}-one")
    settle([consumer], split_evenly(1))
    new_topic(name=f"{prefix}-two")
    new_topic(name=f"not-{prefix}")
    settle([consumer], split_evenly(2))
    produce(new_producer(), f"{prefix}-two", [b"found"])
    assert read(consumer, 1)[0].value() == b"found"


@story("partition-growth")
def test_group_takes_over_added_partitions(
    admin: AdminClient, new_topic: NewTopicFixture, new_consumer: NewConsumer
) -> None:
    topic = new_topic(partitions=1)
    consumer = new_consumer()
    consumer.subscribe([topic])
    settle([consumer], split_evenly(1))
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    settle([consumer], split_evenly(3))


@story("commit")
@pytest.mark.parametrize("kind", ["sync", "async", "on-close"])
def test_next_member_resumes_where_the_last_one_committed(
    kind: str, new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer, unique
) -> None:
    topic, group = new_topic(), unique("group")
    produce(new_producer(), topic, [b"%d" % number for number in range(10)])
    first = new_consumer(group_id=group, enable_auto_commit=kind == "on-close")
    first.subscribe([topic])
    read(first, 4)
    if kind == "sync":
        first.commit(asynchronous=False)
    elif kind == "async":
        first.commit(asynchronous=True)
    first.close()
    second = new_consumer(group_id=group)
    second.subscribe([topic])
    assert read(second, 1)[0].value() == b"4"


@story("commit")
def test_committed_offset_and_metadata_are_returned(new_topic: NewTopicFixture, new_consumer: NewConsumer) -> None:
    topic = new_topic(partitions=2)
    consumer = new_consumer()
    consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
    consumer.commit(offsets=[TopicPartition(topic, 0, 42, "über")], asynchronous=False)
    committed, never = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], 10)
    assert (committed.offset, committed.metadata) == (42, "über")
    assert never.offset == -1001
    assert partitions_of(consumer) == {(topic, 0), (topic, 1)}
