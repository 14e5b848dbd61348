"""Groups looked at and changed from outside, with confluent-kafka's admin client."""

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.confluent.conftest import NewConsumer, NewTopicFixture
from tests.clients.confluent.reading import settle, split_evenly
from tests.clients.patience import until
from tests.clients.stories import story


@story("describe-groups")
def test_live_group_is_listed_and_described(
    admin: AdminClient, new_topic: NewTopicFixture, new_consumer: NewConsumer, unique
) -> None:
    topic, group = new_topic(partitions=2), unique("group")
    members = [new_consumer(group_id=group, client_id=f"client-{number}") for number in range(2)]
    for member in members:
        member.subscribe([topic])
    settle(members, split_evenly(2))

    def stable() -> bool:
        for member in members:
            member.poll(0.02)
        return admin.describe_consumer_groups([group])[group].result(10).state == ConsumerGroupState.STABLE

    until("the group is stable", stable)
    assert group in {listing.group_id for listing in admin.list_consumer_groups().result(10).valid}
    described = admin.describe_consumer_groups([group])[group].result(10)
    assert described.partition_assignor == "range"
    assert described.coordinator.id == next(iter(admin.list_topics(timeout=10).brokers))
    assert {member.client_id for member in described.members} == {"client-0", "client-1"}
    assert all("127.0.0.1" in member.host for member in described.members)
    held = [member.assignment.topic_partitions for member in described.members]
    assert sorted(partition.partition for share in held for partition in share) == [0, 1]


@story("describe-groups")
def test_unknown_group_is_described_as_dead(admin: AdminClient) -> None:
    future = admin.describe_consumer_groups(["no.such.group"])["no.such.group"]
    assert future.result(10).state == ConsumerGroupState.DEAD


def commit(consumer: NewConsumer, group: str, topic: str, offset: int) -> None:
    consumer(group_id=group).commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)


@story("delete-group")
def test_empty_group_is_deleted_and_a_live_one_is_not(
    admin: AdminClient, new_topic: NewTopicFixture, new_consumer: NewConsumer, unique
) -> None:
    topic, empty, live = new_topic(), unique("empty"), unique("live")
    commit(new_consumer, empty, topic, 3)
    member = new_consumer(group_id=live)
    member.subscribe([topic])
    settle([member], split_evenly(1))
    deleted = admin.delete_consumer_groups([empty, live, "no.such.group"])
    deleted[empty].result(10)
    with pytest.raises(KafkaException) as refused:
        deleted[live].result(10)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    with pytest.raises(KafkaException) as unknown:
        deleted["no.such.group"].result(10)
    assert unknown.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND
    assert empty not in {listing.group_id for listing in admin.list_consumer_groups().result(10).valid}
    assert new_consumer(group_id=empty).committed([TopicPartition(topic, 0)], 10)[0].offset == -1001


@story("alter-offsets")
def test_offsets_of_an_empty_group_are_altered_and_listed(
    admin: AdminClient, new_topic: NewTopicFixture, new_consumer: NewConsumer, unique
) -> None:
    topic, group = new_topic(), unique("group")
    commit(new_consumer, group, topic, 3)
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 7)])
    admin.alter_consumer_group_offsets([wanted])[group].result(10)
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(10)
    assert [(held.topic, held.partition, held.offset) for held in listed.topic_partitions] == [(topic, 0, 7)]


@story("alter-offsets")
def test_offsets_of_a_live_group_are_not_altered(
    admin: AdminClient, new_topic: NewTopicFixture, new_consumer: NewConsumer, unique
) -> None:
    topic, group = new_topic(), unique("group")
    member = new_consumer(group_id=group)
    member.subscribe([topic])
    settle([member], split_evenly(1))
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 7)])
    altered = admin.alter_consumer_group_offsets([wanted])[group].result(10)
    assert [place.error.code() for place in altered.topic_partitions] == [KafkaError.UNKNOWN_MEMBER_ID]
