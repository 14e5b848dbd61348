"""Topics, partitions, configs and offsets through confluent-kafka's admin client, and the errors it must be given."""

import time

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.clients.confluent.conftest import NewConsumer, NewProducer, NewTopicFixture
from tests.clients.confluent.reading import produce, read_partition
from tests.clients.patience import until
from tests.clients.stories import story


def topic_config(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    described: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(10)
    return described


@story("topics")
def test_topic_is_created_listed_described_and_deleted(admin: AdminClient, unique) -> None:
    topic = unique("topic")
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(10)
    assert sorted(admin.list_topics(timeout=10).topics[topic].partitions) == [0, 1, 2]
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(10)
    assert described.name == topic
    assert not described.is_internal
    assert [(len(part.replicas), len(part.isr)) for part in described.partitions] == [(1, 1)] * 3
    admin.delete_topics([topic])[topic].result(10)
    until("the topic is gone", lambda: topic not in admin.list_topics(timeout=10).topics)


@story("topics")
def test_topic_is_made_by_producing_to_it(new_producer: NewProducer, new_consumer: NewConsumer, unique) -> None:
    topic = unique("topic")
    produce(new_producer(), topic, [b"first"])
    assert read_partition(new_consumer(), topic, 1)[0].value() == b"first"


@story("topics")
def test_validate_only_creates_nothing(admin: AdminClient, unique) -> None:
    topic = unique("topic")
    admin.create_topics([NewTopic(topic, 3, 1)], validate_only=True)[topic].result(10)
    assert topic not in admin.list_topics(timeout=10).topics


@story("topic-errors")
@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic("bad name!", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("..", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("x" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("refused.replicas", 1, 9), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("refused.partitions", 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("refused.setting", 1, 1, config={"no.such.setting": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("refused.value", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
    ],
    ids=["characters", "dots", "length", "replicas", "partitions", "unknown-setting", "bad-value"],
)
def test_topic_is_refused_with_the_right_code(admin: AdminClient, new: NewTopic, code: int) -> None:
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([new])[new.topic].result(10)
    assert refused.value.args[0].code() == code


@story("topic-errors")
def test_existing_and_missing_topics_are_refused(admin: AdminClient, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    with pytest.raises(KafkaException) as existing:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(10)
    assert existing.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaException) as missing:
        admin.delete_topics(["no.such.topic"])["no.such.topic"].result(10)
    assert missing.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


@story("partitions")
def test_partitions_are_added_and_never_removed(
    admin: AdminClient, new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic(partitions=2)
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(10)
    until("four partitions are seen", lambda: len(admin.list_topics(timeout=10).topics[topic].partitions) == 4)
    produce(new_producer(), topic, [b"new"], partition=3)
    assert read_partition(new_consumer(), topic, 1, 3)[0].value() == b"new"
    for refused_count in (4, 1):
        with pytest.raises(KafkaException) as refused:
            admin.create_partitions([NewPartitions(topic, refused_count)])[topic].result(10)
        assert refused.value.args[0].code() == KafkaError.INVALID_PARTITIONS


@story("configs")
def test_topic_config_shows_defaults_and_what_was_set(admin: AdminClient, new_topic: NewTopicFixture) -> None:
    entries = topic_config(admin, new_topic(retention_ms="123456"))
    assert (entries["retention.ms"].value, entries["retention.ms"].is_default) == ("123456", False)
    assert (entries["cleanup.policy"].value, entries["cleanup.policy"].is_default) == ("delete", True)
    assert {"segment.bytes", "max.message.bytes", "compression.type", "message.timestamp.type"} <= set(entries)


@story("configs")
def test_alter_configs_replaces_everything(admin: AdminClient, new_topic: NewTopicFixture) -> None:
    topic = new_topic(retention_ms="123456", segment_bytes="2000000")
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "5000"})
    admin.alter_configs([resource])[resource].result(10)
    until("the new value is seen", lambda: topic_config(admin, topic)["retention.ms"].value == "5000")
    assert topic_config(admin, topic)["segment.bytes"].is_default


@story("configs")
def test_config_of_a_missing_topic_is_refused(admin: AdminClient) -> None:
    with pytest.raises(KafkaException) as refused:
        topic_config(admin, "no.such.topic")
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


@story("configs")
def test_broker_config_is_described(admin: AdminClient) -> None:
    broker_id = next(iter(admin.list_topics(timeout=10).brokers))
    resource = ConfigResource(ResourceType.BROKER, str(broker_id))
    assert admin.describe_configs([resource])[resource].result(10)


def incrementally(admin: AdminClient, topic: str, name: str, operation: AlterConfigOpType, value: str | None) -> None:
    entry = ConfigEntry(name, value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(10)


@story("incremental-configs")
def test_brokers_and_groups_take_settings_of_their_own(admin: AdminClient, unique) -> None:
    broker = ConfigResource(ResourceType.BROKER, str(next(iter(admin.list_topics(timeout=10).brokers))))
    group = ConfigResource(ResourceType.GROUP, unique("group"))
    for resource, name, value in (
        (broker, "background.threads", "9"),
        (broker, "message.max.bytes", "1048589"),
        (group, "consumer.session.timeout.ms", "50000"),
    ):

        def told(resource: ConfigResource = resource, name: str = name) -> ConfigEntry:
            return admin.describe_configs([resource])[resource].result(10)[name]

        for operation, expected in ((AlterConfigOpType.SET, value), (AlterConfigOpType.DELETE, told().value)):
            entry = ConfigEntry(name, value, incremental_operation=operation)
            change = ConfigResource(resource.restype, resource.name, incremental_configs=[entry])
            admin.incremental_alter_configs([change])[change].result(10)
            until("the change is seen", lambda told=told, expected=expected: told().value == expected)
        assert told().is_default


@story("incremental-configs")
def test_settings_are_set_appended_subtracted_and_deleted_alone(admin: AdminClient, new_topic: NewTopicFixture) -> None:
    topic = new_topic(segment_bytes="2000000")

    def value_of(name: str) -> str:
        value: str = topic_config(admin, topic)[name].value
        return value

    incrementally(admin, topic, "retention.ms", AlterConfigOpType.SET, "5000")
    until("the setting is set", lambda: value_of("retention.ms") == "5000")
    assert value_of("segment.bytes") == "2000000"
    incrementally(admin, topic, "cleanup.policy", AlterConfigOpType.APPEND, "compact")
    until("the list grew", lambda: set(value_of("cleanup.policy").split(",")) == {"delete", "compact"})
    incrementally(admin, topic, "cleanup.policy", AlterConfigOpType.SUBTRACT, "delete")
    until("the list shrank", lambda: value_of("cleanup.policy") == "compact")
    incrementally(admin, topic, "segment.bytes", AlterConfigOpType.DELETE, None)
    until("the default is back", lambda: topic_config(admin, topic)["segment.bytes"].is_default)


@story("incremental-configs")
def test_bad_setting_is_refused(admin: AdminClient, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    with pytest.raises(KafkaException) as refused:
        incrementally(admin, topic, "retention.ms", AlterConfigOpType.SET, "soon")
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG


@story("cluster")
def test_cluster_is_described(admin: AdminClient, bootstrap: str) -> None:
    described = admin.describe_cluster().result(10)
    assert described.cluster_id
    assert [f"{node.host}:{node.port}" for node in described.nodes] == [bootstrap]
    assert described.controller.id in {node.id for node in described.nodes}


@story("delete-records")
def test_deleted_records_are_gone_and_the_rest_stays(
    admin: AdminClient, new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    produce(new_producer(), topic, [b"%d" % number for number in range(10)])
    place = TopicPartition(topic, 0, 6)
    assert admin.delete_records([place])[place].result(10).low_watermark == 6
    consumer = new_consumer()
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (6, 10)
    assert [message.value() for message in read_partition(consumer, topic, 4)] == [b"6", b"7", b"8", b"9"]
    beyond = TopicPartition(topic, 0, 100)
    with pytest.raises(KafkaException) as refused:
        admin.delete_records([beyond])[beyond].result(10)
    assert refused.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE


@story("list-offsets")
def test_offsets_are_listed_by_spec(admin: AdminClient, new_topic: NewTopicFixture, new_producer: NewProducer) -> None:
    topic = new_topic()
    producer = new_producer()
    start_ms = int(time.time() * 1000) - 3_600_000
    for step in (0, 5000, 2000):
        produce(producer, topic, [b"v"], timestamp=start_ms + step)
    place = TopicPartition(topic, 0)

    def offset(spec: OffsetSpec) -> int:
        listed: int = admin.list_offsets({place: spec})[place].result(10).offset
        return listed

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 3
    assert offset(OffsetSpec.max_timestamp()) == 1
    assert offset(OffsetSpec.for_timestamp(start_ms + 1)) == 1
