"""Topics, partitions, configs and groups through aiokafka's admin client, and the errors it must be given."""

import pytest
from aiokafka import TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.clients.aio.clients import Clients, produce, read_partition, settle, split_evenly, until
from tests.clients.stories import story

DEFAULT_CONFIG, DYNAMIC_TOPIC_CONFIG = 5, 1


@story("topics")
async def test_topic_is_created_listed_described_and_deleted(clients: Clients) -> None:
    admin = await clients.admin()
    topic = await clients.topic(partitions=3)
    assert topic in await admin.list_topics()
    described = (await admin.describe_topics([topic]))[0]
    assert (described["topic"], described["error_code"], described["is_internal"]) == (topic, 0, False)
    assert sorted(part["partition"] for part in described["partitions"]) == [0, 1, 2]
    answer = await admin.delete_topics([topic])
    assert [error[1] for error in answer.topic_error_codes] == [0]

    async def gone() -> bool:
        return topic not in await admin.list_topics()

    await until("the topic is gone", gone)


@story("topic-errors")
@pytest.mark.parametrize(
    ("new", "error"),
    [
        (NewTopic("bad name!", 1, 1), errors.InvalidTopicError),
        (NewTopic("..", 1, 1), errors.InvalidTopicError),
        (NewTopic("refused.replicas", 1, 9), errors.InvalidReplicationFactorError),
        (NewTopic("refused.partitions", 0, 1), errors.InvalidPartitionsError),
        (NewTopic("refused.setting", 1, 1, topic_configs={"no.such.setting": "1"}), errors.InvalidConfigurationError),
        (NewTopic("refused.value", 1, 1, topic_configs={"retention.ms": "soon"}), errors.InvalidConfigurationError),
    ],
    ids=["characters", "dots", "replicas", "partitions", "unknown-setting", "bad-value"],
)
async def test_topic_is_refused_with_the_right_code(
    new: NewTopic, error: type[errors.BrokerResponseError], clients: Clients
) -> None:
    answer = await (await clients.admin()).create_topics([new])
    assert [refused[1] for refused in answer.topic_errors] == [error.errno]


@story("topic-errors")
async def test_existing_and_missing_topics_are_refused(clients: Clients) -> None:
    admin, topic = await clients.admin(), await clients.topic()
    again = await admin.create_topics([NewTopic(topic, 1, 1)])
    assert again.topic_errors[0][1] == errors.TopicAlreadyExistsError.errno
    missing = await admin.delete_topics(["no.such.topic"])
    assert missing.topic_error_codes[0][1] == errors.UnknownTopicOrPartitionError.errno


@story("partitions")
async def test_partitions_are_added_and_never_removed(clients: Clients) -> None:
    admin, topic = await clients.admin(), await clients.topic(partitions=2)
    await admin.create_partitions({topic: NewPartitions(4)})

    async def four() -> bool:
        return len((await admin.describe_topics([topic]))[0]["partitions"]) == 4

    await until("four partitions are seen", four)
    await produce(await clients.producer(), topic, [b"new"], partition=3)
    assert (await read_partition(await clients.consumer(), topic, 1, 3))[0].value == b"new"
    for refused_count in (4, 1):
        with pytest.raises(errors.InvalidPartitionsError):
            await admin.create_partitions({topic: NewPartitions(refused_count)})


async def topic_config(admin: AIOKafkaAdminClient, topic: str) -> dict[str, tuple[str, int]]:
    """The value and the source of every setting."""
    answer = (await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)]))[0]
    (code, _, _, _, entries) = answer.resources[0]
    assert code == 0, answer
    return {entry[0]: (entry[1], entry[3]) for entry in entries}


@story("configs")
async def test_configs_are_described_and_altered(clients: Clients) -> None:
    admin, topic = await clients.admin(), await clients.topic(retention_ms="123456")
    entries = await topic_config(admin, topic)
    assert entries["retention.ms"] == ("123456", DYNAMIC_TOPIC_CONFIG)
    assert entries["cleanup.policy"] == ("delete", DEFAULT_CONFIG)
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": "5000"})])

    async def altered() -> bool:
        return (await topic_config(admin, topic))["max.message.bytes"] == ("5000", DYNAMIC_TOPIC_CONFIG)

    await until("the new value is seen", altered)
    assert (await topic_config(admin, topic))["retention.ms"][1] != DYNAMIC_TOPIC_CONFIG


@story("cluster")
async def test_cluster_is_described(clients: Clients) -> None:
    described = await (await clients.admin()).describe_cluster()
    assert described["cluster_id"]
    assert [f"{node['host']}:{node['port']}" for node in described["brokers"]] == [clients.bootstrap]
    assert described["controller_id"] in {node["node_id"] for node in described["brokers"]}


@story("delete-records")
async def test_deleted_records_are_gone_and_the_rest_stays(clients: Clients) -> None:
    admin, topic = await clients.admin(), await clients.topic()
    await produce(await clients.producer(), topic, [b"%d" % number for number in range(10)])
    place = TopicPartition(topic, 0)
    assert await admin.delete_records({place: RecordsToDelete(6)}) == {place: 6}
    consumer = await clients.consumer()
    assert await consumer.beginning_offsets([place]) == {place: 6}
    assert [record.offset for record in await read_partition(consumer, topic, 4)] == [6, 7, 8, 9]
    with pytest.raises(errors.OffsetOutOfRangeError):
        await admin.delete_records({place: RecordsToDelete(100)})


@story("describe-groups")
async def test_live_group_is_listed_and_described(clients: Clients) -> None:
    topic, group = await clients.topic(partitions=2), clients.unique("group")
    members = [await clients.consumer(topic, group_id=group, client_id=f"client-{number}") for number in range(2)]
    await settle(members, split_evenly(2))
    admin = await clients.admin()
    assert (group, "consumer") in await admin.list_consumer_groups()

    async def stable() -> bool:
        described = (await admin.describe_consumer_groups([group]))[0].groups[0]
        return described[2] == "Stable"

    await until("the group is stable", stable)
    code, name, _, kind, assignor, listed, *_ = (await admin.describe_consumer_groups([group]))[0].groups[0]
    assert (code, name, kind, assignor) == (0, group, "consumer", "roundrobin")
    assert {member[1] for member in listed} == {"client-0", "client-1"}


@story("describe-groups")
async def test_unknown_group_is_described_as_dead(clients: Clients) -> None:
    described = (await (await clients.admin()).describe_consumer_groups(["no.such.group"]))[0].groups[0]
    assert (described[0], described[2]) == (0, "Dead")
