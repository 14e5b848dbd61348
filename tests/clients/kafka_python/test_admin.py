"""Topics, partitions, configs and offsets through kafka-python's admin client, and the errors it must be given."""

import time
import uuid
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition, errors
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, OffsetSpec

from tests.clients.kafka_python.conftest import NewConsumer, NewProducer, NewTopic
from tests.clients.kafka_python.reading import produce, read_partition
from tests.clients.patience import until
from tests.clients.stories import story


def topic_config(admin: KafkaAdminClient, topic: str) -> dict[str, Any]:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    entries: dict[str, Any] = admin.describe_configs([resource], config_filter="all")["topic"][topic]
    return entries


@story("topics")
def test_topic_is_created_listed_described_and_deleted(admin: KafkaAdminClient, unique) -> None:
    topic = unique("topic")
    admin.create_topics({topic: {"num_partitions": 3, "replication_factor": 1}})
    assert topic in admin.list_topics()
    described = admin.describe_topics([topic])[0]
    assert (described["name"], described["error_code"], described["is_internal"]) == (topic, 0, False)
    assert sorted(part["partition_index"] for part in described["partitions"]) == [0, 1, 2]
    by_id = admin.describe_topics([uuid.UUID(str(described["topic_id"]))])[0]
    assert (by_id["name"], by_id["error_code"]) == (topic, 0)
    paged = admin.describe_topic_partitions([topic])
    assert topic in str(paged)
    admin.delete_topics([topic])
    until("the topic is gone", lambda: topic not in admin.list_topics())


@story("topics")
def test_counts_left_out_take_the_brokers_defaults(admin: KafkaAdminClient, unique) -> None:
    topic = unique("topic")
    admin.create_topics([topic])
    until("the topic has a partition", lambda: admin.describe_topics([topic])[0]["partitions"])


@story("topics")
def test_validate_only_creates_nothing(admin: KafkaAdminClient, unique) -> None:
    topic = unique("topic")
    admin.create_topics([topic], validate_only=True)
    assert topic not in admin.list_topics()


@story("topic-errors")
@pytest.mark.parametrize(
    ("name", "wanted", "error"),
    [
        ("bad name!", {}, errors.InvalidTopicError),
        ("..", {}, errors.InvalidTopicError),
        ("x" * 250, {}, errors.InvalidTopicError),
        ("refused.replicas", {"replication_factor": 9}, errors.InvalidReplicationFactorError),
        ("refused.partitions", {"num_partitions": 0}, errors.InvalidPartitionsError),
        ("refused.setting", {"configs": {"no.such.setting": "1"}}, errors.InvalidConfigurationError),
        ("refused.value", {"configs": {"retention.ms": "soon"}}, errors.InvalidConfigurationError),
        (
            "refused.both",
            {"num_partitions": 2, "assignments": {0: [1]}},
            errors.InvalidRequestError,
        ),
        ("refused.place", {"assignments": {0: [777]}}, errors.InvalidReplicationAssignmentError),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_topic_is_refused_with_the_right_code(
    admin: KafkaAdminClient, name: str, wanted: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        admin.create_topics({name: wanted})


@story("topic-errors")
def test_existing_and_missing_topics_are_refused(admin: KafkaAdminClient, new_topic: NewTopic) -> None:
    topic = new_topic()
    with pytest.raises(errors.TopicAlreadyExistsError):
        admin.create_topics([topic])
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        admin.delete_topics(["no.such.topic"])


@story("partitions")
def test_partitions_are_added_and_never_removed(
    admin: KafkaAdminClient, new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic(partitions=2)
    admin.create_partitions({topic: 4})
    until("four partitions are seen", lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 4)
    produce(new_producer(), topic, [b"new"], partition=3)
    assert read_partition(new_consumer(), topic, 1, 3)[0].value == b"new"
    for refused_count in (4, 1):
        with pytest.raises(errors.InvalidPartitionsError):
            admin.create_partitions({topic: refused_count})


@story("configs")
def test_topic_config_shows_defaults_and_what_was_set(admin: KafkaAdminClient, new_topic: NewTopic) -> None:
    entries = topic_config(admin, new_topic(retention_ms="123456"))
    assert entries["retention.ms"]["value"] == "123456"
    assert entries["retention.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    assert (entries["cleanup.policy"]["value"], entries["cleanup.policy"]["config_source"]) == (
        "delete",
        "DEFAULT_CONFIG",
    )
    assert (entries["retention.ms"]["config_type"], entries["cleanup.policy"]["config_type"]) == ("LONG", "LIST")


@story("configs")
def test_alter_configs_replaces_everything(admin: KafkaAdminClient, new_topic: NewTopic) -> None:
    topic = new_topic()
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "5000"})
    admin.alter_configs([resource], incremental=False)
    until("the new value is seen", lambda: topic_config(admin, topic)["retention.ms"]["value"] == "5000")
    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=["retention.ms"])], incremental=False)
    until(
        "the default is back",
        lambda: topic_config(admin, topic)["retention.ms"]["config_source"] != "DYNAMIC_TOPIC_CONFIG",
    )


@story("configs")
def test_altered_topics_are_listed_as_config_resources(admin: KafkaAdminClient, new_topic: NewTopic) -> None:
    topic = new_topic(retention_ms="123456")
    assert topic in str(admin.list_config_resources(resource_types=["TOPIC"]))


@story("incremental-configs")
def test_settings_are_set_appended_subtracted_and_deleted_alone(admin: KafkaAdminClient, new_topic: NewTopic) -> None:
    topic = new_topic(segment_bytes="2000000")

    def alter(name: str, operation: AlterConfigOp, value: str | None) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={name: (operation, value)})
        admin.alter_configs([resource], incremental=True)

    def value_of(name: str) -> str:
        value: str = topic_config(admin, topic)[name]["value"]
        return value

    alter("retention.ms", AlterConfigOp.SET, "5000")
    until("the setting is set", lambda: value_of("retention.ms") == "5000")
    assert value_of("segment.bytes") == "2000000"
    alter("cleanup.policy", AlterConfigOp.APPEND, "compact")
    until("the list grew", lambda: set(value_of("cleanup.policy").split(",")) == {"delete", "compact"})
    alter("cleanup.policy", AlterConfigOp.SUBTRACT, "delete")
    until("the list shrank", lambda: value_of("cleanup.policy") == "compact")
    alter("segment.bytes", AlterConfigOp.DELETE, None)
    until("the default is back", lambda: value_of("segment.bytes") != "2000000")


@story("cluster")
def test_cluster_is_described(admin: KafkaAdminClient, bootstrap: str) -> None:
    described = admin.describe_cluster()
    assert described["cluster_id"]
    assert [f"{node['host']}:{node['port']}" for node in described["brokers"]] == [bootstrap]
    assert described["controller_id"] in {node["broker_id"] for node in described["brokers"]}


@story("cluster")
def test_log_dirs_show_the_bytes_of_a_partition(
    admin: KafkaAdminClient, new_topic: NewTopic, new_producer: NewProducer
) -> None:
    topic = new_topic()
    produce(new_producer(), topic, [b"x" * 1000])
    folders = admin.describe_log_dirs()[0]["log_dirs"]
    sizes = {held["name"]: held["partitions"][0]["partition_size"] for folder in folders for held in folder["topics"]}
    assert sizes[topic] > 1000


@story("delete-records")
def test_deleted_records_are_gone_and_the_rest_stays(
    admin: KafkaAdminClient, new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    produce(new_producer(), topic, [b"%d" % number for number in range(10)])
    place = TopicPartition(topic, 0)
    assert admin.delete_records({place: 6})[place]["low_watermark"] == 6
    consumer = new_consumer()
    assert consumer.beginning_offsets([place]) == {place: 6}
    assert [record.value for record in read_partition(consumer, topic, 4)] == [b"6", b"7", b"8", b"9"]
    with pytest.raises(errors.OffsetOutOfRangeError):
        admin.delete_records({place: 100})


@story("list-offsets")
def test_offsets_are_listed_by_spec(admin: KafkaAdminClient, new_topic: NewTopic, new_producer: NewProducer) -> None:
    topic = new_topic()
    producer, place = new_producer(), TopicPartition(topic, 0)
    start_ms = int(time.time() * 1000) - 3_600_000
    for step in (0, 5000, 2000):
        produce(producer, topic, [b"v"], timestamp_ms=start_ms + step)

    def offset(spec: Any) -> int:
        listed: int = admin.list_partition_offsets({place: spec})[place].offset
        return listed

    assert offset(OffsetSpec.EARLIEST) == 0
    assert offset(OffsetSpec.LATEST) == 3
    assert offset(OffsetSpec.MAX_TIMESTAMP) == 1
    assert offset(start_ms + 1) == 1
