"""Groups looked at and changed from outside, with kafka-python's admin client."""

import pytest
from kafka import KafkaAdminClient, OffsetAndMetadata, TopicPartition
from kafka.errors import GroupIdNotFoundError, GroupSubscribedToTopicError, NoError, UnknownMemberIdError

from tests.clients.kafka_python.conftest import NewConsumer, NewTopic
from tests.clients.kafka_python.reading import settle, split_evenly, subscribe
from tests.clients.patience import until
from tests.clients.stories import story


def state_of(admin: KafkaAdminClient, group: str) -> str:
    state: str = admin.describe_groups([group])[group]["group_state"]
    return state


@story("describe-groups")
def test_live_group_is_listed_and_described(
    admin: KafkaAdminClient, new_topic: NewTopic, new_consumer: NewConsumer, unique
) -> None:
    topic, group = new_topic(partitions=2), unique("group")
    members = [new_consumer(group_id=group, client_id=f"client-{number}") for number in range(2)]
    for member in members:
        subscribe(member, [topic])
    until("the group is stable", lambda: settle(members, split_evenly(2)) and state_of(admin, group) == "Stable")
    assert group in {listing["group_id"] for listing in admin.list_groups()}
    described = admin.describe_groups([group])[group]
    assert (described["group_state"], described["protocol_data"], described["error"]) == ("Stable", "range", None)
    assert {member["client_id"] for member in described["members"]} == {"client-0", "client-1"}
    assert all("127.0.0.1" in member["client_host"] for member in described["members"])


@story("describe-groups")
def test_groups_are_listed_by_state(
    admin: KafkaAdminClient, new_topic: NewTopic, new_consumer: NewConsumer, unique
) -> None:
    topic, group = new_topic(), unique("group")
    new_consumer(group_id=group).commit({TopicPartition(topic, 0): OffsetAndMetadata(3, "", -1)})
    assert group in {listing["group_id"] for listing in admin.list_groups(states_filter=["Empty"])}
    assert group not in {listing["group_id"] for listing in admin.list_groups(states_filter=["Stable"])}


@story("describe-groups")
def test_unknown_group_is_said_not_to_exist(admin: KafkaAdminClient) -> None:
    described = admin.describe_groups(["no.such.group"])["no.such.group"]
    assert described["group_state"] == "Dead"
    assert "GroupIdNotFound" in described["error"]


@story("delete-group")
def test_empty_group_is_deleted_and_a_live_one_is_not(
    admin: KafkaAdminClient, new_topic: NewTopic, new_consumer: NewConsumer, unique
) -> None:
    topic, empty, live = new_topic(), unique("empty"), unique("live")
    new_consumer(group_id=empty).commit({TopicPartition(topic, 0): OffsetAndMetadata(3, "", -1)})
    member = new_consumer(group_id=live)
    subscribe(member, [topic])
    settle([member], split_evenly(1))
    assert admin.delete_groups([empty, live, "no.such.group"]) == {
        empty: "OK",
        live: "NonEmptyGroupError",
        "no.such.group": "GroupIdNotFoundError",
    }
    assert empty not in {listing["group_id"] for listing in admin.list_groups()}


@story("delete-offsets")
def test_offsets_of_an_empty_group_are_deleted_one_by_one(
    admin: KafkaAdminClient, new_topic: NewTopic, new_consumer: NewConsumer, unique
) -> None:
    topic, group = new_topic(partitions=2), unique("group")
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    new_consumer(group_id=group).commit({place: OffsetAndMetadata(3, "", -1) for place in (zero, one)})
    assert admin.delete_group_offsets(group, [zero]) == {zero: NoError}
    assert {place: held.offset for place, held in admin.list_group_offsets(group)[group].items()} == {one: 3}


@story("delete-offsets")
def test_offsets_of_a_subscribed_topic_and_of_an_unknown_group_are_not_deleted(
    admin: KafkaAdminClient, new_topic: NewTopic, new_consumer: NewConsumer, unique
) -> None:
    topic, group = new_topic(), unique("group")
    member = new_consumer(group_id=group)
    subscribe(member, [topic])
    settle([member], split_evenly(1))
    place = TopicPartition(topic, 0)
    assert admin.delete_group_offsets(group, [place]) == {place: GroupSubscribedToTopicError}
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_group_offsets("no.such.group", [place])


@story("alter-offsets")
def test_offsets_of_an_empty_group_are_altered_and_those_of_a_live_one_are_not(
    admin: KafkaAdminClient, new_topic: NewTopic, new_consumer: NewConsumer, unique
) -> None:
    topic, empty, live = new_topic(), unique("empty"), unique("live")
    place = TopicPartition(topic, 0)
    assert admin.alter_group_offsets(empty, {place: OffsetAndMetadata(7, "", -1)}) == {place: NoError}
    assert admin.list_group_offsets(empty)[empty][place].offset == 7
    member = new_consumer(group_id=live)
    subscribe(member, [topic])
    settle([member], split_evenly(1))
    altered = admin.alter_group_offsets(live, {place: OffsetAndMetadata(7, "", -1)})
    assert altered == {place: UnknownMemberIdError}
