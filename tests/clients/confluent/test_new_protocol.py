"""Consumer groups whose partitions the broker assigns (KIP-848), as confluent-kafka's members live in them."""

import re
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, ConsumerGroupType, KafkaException
from confluent_kafka.admin import AdminClient

from tests.clients.confluent.conftest import NewConsumer, NewProducer, NewTopicFixture
from tests.clients.confluent.moves import Moves
from tests.clients.confluent.reading import produce, read, settle, split_evenly
from tests.clients.patience import until
from tests.clients.stories import story

NewMember = Callable[..., Consumer]


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    return unique("group")


@pytest.fixture
def member(new_consumer: NewConsumer, group: str) -> NewMember:
    return lambda **config: new_consumer(group_id=group, group_protocol="consumer", **config)


def kind(admin: AdminClient, group: str) -> ConsumerGroupType | None:
    listed = admin.list_consumer_groups().result(10).valid
    return next((found.type for found in listed if found.group_id == group), None)


@story("new-protocol")
def test_three_members_split_the_partitions_and_read_everything_once(
    new_topic: NewTopicFixture, new_producer: NewProducer, admin: AdminClient, member: NewMember, group: str
) -> None:
    topic = new_topic(partitions=6)
    members = [member() for _ in range(3)]
    for consumer in members:
        consumer.subscribe([topic])
    settle(members, split_evenly(6))
    producer = new_producer()
    for number in range(60):
        produce(producer, topic, [b"%d" % number], partition=number % 6)
    seen: list[int] = []

    def all_seen() -> bool:
        for consumer in members:
            seen.extend(int(message.value()) for message in consumer.consume(100, 0.05))
        return len(seen) >= 60

    until("60 messages reach the group", all_seen)
    assert sorted(seen) == list(range(60))
    described = admin.describe_consumer_groups([group])[group].result(10)
    assert sorted(len(who.assignment.topic_partitions) for who in described.members) == [2, 2, 2]
    assert kind(admin, group) == ConsumerGroupType.CONSUMER


@story("new-protocol")
def test_who_keeps_partitions_keeps_them_all_the_time(new_topic: NewTopicFixture, member: NewMember) -> None:
    topic, moves = new_topic(partitions=6), Moves()
    first = member()
    moves.subscribe(first, topic)
    settle([first], split_evenly(6))
    moves.forget()
    second = member()
    second.subscribe([topic])
    kept, _ = settle([first, second], split_evenly(6))
    assert moves.taken == []
    assert len(moves.given) == 3
    assert kept.isdisjoint({(topic, partition) for partition in moves.given})
    moves.forget()
    second.close()
    settle([first], split_evenly(6))
    assert moves.given == []
    assert len(moves.taken) == 3


@story("new-protocol")
def test_next_member_resumes_where_the_last_one_committed(
    new_topic: NewTopicFixture, new_producer: NewProducer, admin: AdminClient, member: NewMember, group: str
) -> None:
    topic = new_topic()
    produce(new_producer(), topic, [b"%d" % number for number in range(10)])
    first = member()
    first.subscribe([topic])
    last = read(first, 4)[-1]
    first.commit(message=last, asynchronous=False)
    first.close()
    second = member()
    second.subscribe([topic])
    assert read(second, 1)[0].value() == b"4"
    with pytest.raises(KafkaException, match="not empty"):
        admin.delete_consumer_groups([group])[group].result(10)
    second.close()
    admin.delete_consumer_groups([group])[group].result(10)
    assert kind(admin, group) is None


@story("new-protocol-static")
def test_static_member_comes_back_to_its_partitions_without_a_rebalance(
    new_topic: NewTopicFixture, member: NewMember
) -> None:
    topic, moves = new_topic(partitions=4), Moves()
    stays = member(group_instance_id="stays")
    moves.subscribe(stays, topic)
    restarts = member(group_instance_id="restarts")
    restarts.subscribe([topic])
    kept, moved = settle([stays, restarts], split_evenly(4))
    moves.forget()
    restarts.close()
    again = member(group_instance_id="restarts")
    again.subscribe([topic])
    assert settle([stays, again], split_evenly(4)) == [kept, moved]
    assert (moves.given, moves.taken) == ([], [])


@story("new-protocol-regex")
def test_pattern_is_resolved_by_the_broker_and_finds_a_topic_made_later(
    new_topic: NewTopicFixture, new_producer: NewProducer, member: NewMember, unique: Callable[[str], str]
) -> None:
    family, consumer = unique("family"), member()
    consumer.subscribe([f"^{re.escape(family)}-.*"])
    new_topic(name=f"{family}-one")
    settle([consumer], split_evenly(1))
    new_topic(name=f"{family}-two")
    new_topic(name=f"not-{family}")
    settle([consumer], split_evenly(2))
    produce(new_producer(), f"{family}-two", [b"found"])
    assert read(consumer, 1)[0].value() == b"found"


@story("protocol-move")
def test_group_moves_to_the_new_protocol_and_back(
    new_topic: NewTopicFixture, new_consumer: NewConsumer, admin: AdminClient, member: NewMember, group: str
) -> None:
    topic = new_topic(partitions=4)
    # One member only: the second would have librdkafka put data of its own into the assignment, and then Kafka does not
    # dare to move the group.
    old = new_consumer(group_id=group, partition_assignment_strategy="cooperative-sticky")
    old.subscribe([topic])
    settle([old], split_evenly(4))
    assert kind(admin, group) == ConsumerGroupType.CLASSIC
    new = member()
    new.subscribe([topic])
    settle([old, new], split_evenly(4))
    assert kind(admin, group) == ConsumerGroupType.CONSUMER
    new.close()
    settle([old], split_evenly(4))
    assert kind(admin, group) == ConsumerGroupType.CLASSIC
