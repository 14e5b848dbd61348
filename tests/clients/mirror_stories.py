"""MirrorMaker 2 brings topics, records and groups from Apache Kafka to headrace, set up as docs/moving.md says.

A part of the compatibility run. Of the page's settings only the addresses are others here, and the pauses between two
looks are shorter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType

from bench.peers import Peer
from bench.processes import Children
from tests.clients.confluent.reading import read
from tests.clients.java_suite import CLASSPATH
from tests.clients.patience import until
from tests.clients.shell import Stage, expect

PAGE = Path(__file__).parents[2] / "docs" / "moving.md"
IMPATIENT = """
refresh.topics.interval.seconds = 2
refresh.groups.interval.seconds = 2
sync.topic.configs.interval.seconds = 2
sync.group.offsets.interval.seconds = 2
emit.checkpoints.interval.seconds = 2
"""
PARTITIONS, RECORDS = 3, 3000
SETTINGS = {"retention.ms": "86400000", "max.message.bytes": "2000000", "cleanup.policy": "delete"}
DEADLINE_S = 120.0
Copied = tuple[object, ...]


def tell(kafka: Peer, stage: Stage) -> None:
    source = Stage(kafka.address, stage.folder)
    topic, group = source.unique("moved"), source.unique("group")
    earlier, later = range(RECORDS), range(RECORDS, RECORDS + 300)
    source.topic(PARTITIONS, topic, **{name.replace(".", "_"): value for name, value in SETTINGS.items()})
    produce(source, topic, earlier)
    read_as(source, group, topic, earlier)
    with mirror(kafka.address, stage):
        until("the topic is there", lambda: topic in stage.admin.list_topics(timeout=10).topics, DEADLINE_S)
        until("all records are there", lambda: sum(map(len, records(stage, topic))) >= RECORDS, DEADLINE_S, 1.0)
        until("the group is there", lambda: len(offsets(stage, group)) == PARTITIONS, DEADLINE_S, 1.0)
        produce(source, topic, later)
        until("later ones too", lambda: sum(map(len, records(stage, topic))) >= later.stop, DEADLINE_S, 1.0)
    expect(records(source, topic), records(stage, topic))
    expect(SETTINGS, {name: setting(stage, topic, name) for name in SETTINGS})
    # The group went on about where it stood, and did not begin anew.
    expect(True, read_as(stage, group, topic, later) < RECORDS)


@contextmanager
def mirror(kafka: str, stage: Stage) -> Iterator[None]:
    block = re.search(r"^```properties\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert block is not None, f"{PAGE.name} has no settings any more"
    text = block[1].replace("kafka.example:9092", kafka).replace("127.0.0.1:9092", stage.bootstrap)
    settings = stage.file("mirror.properties", text + IMPATIENT)
    command = ["java", "-Xmx512m", "-cp", CLASSPATH, "org.apache.kafka.connect.mirror.MirrorMaker", str(settings)]
    log = stage.folder / "mirror.log"
    with Children() as children:
        process = children.start(command, log=log)
        try:
            yield
            said = log.read_text(errors="replace")
            assert process.poll() is None, f"MirrorMaker ended by itself: {said[-2000:]}"
            expect([], [line for line in said.splitlines() if " ERROR " in line])
        finally:
            children.stop(process)


def produce(stage: Stage, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": stage.bootstrap, "compression.type": "zstd"})
    for number in numbers:
        producer.produce(topic, f"v{number}", key=f"k{number % 97}", headers=[("number", str(number).encode())])
    expect(0, producer.flush(30))


def records(stage: Stage, topic: str) -> list[list[Copied]]:
    """Key, value, headers and timestamp of each record, partition by partition, in order."""
    found: list[list[Copied]] = []
    for partition in range(PARTITIONS):
        consumer = Consumer({"bootstrap.servers": stage.bootstrap, "group.id": "nobody", "enable.partition.eof": True})
        consumer.assign([TopicPartition(topic, partition, 0)])
        found.append([])
        while True:
            message = consumer.poll(10)
            assert message is not None, f"{topic} does not come to its end"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                break
            found[-1].append((message.key(), message.value(), message.headers(), message.timestamp()))
        consumer.close()
    return found


def read_as(stage: Stage, group: str, topic: str, numbers: range) -> int:
    """Read as a member of the group until all of these have come; commit, and tell how many there were."""
    consumer = Consumer(
        {
            "bootstrap.servers": stage.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )  # fmt: skip
    consumer.subscribe([topic])
    seen, missing = 0, {f"v{number}".encode() for number in numbers}
    while missing:
        seen += 1
        missing.discard(read(consumer, 1)[0].value() or b"")
    consumer.commit(asynchronous=False)
    consumer.close()
    return seen


def offsets(stage: Stage, group: str) -> dict[int, int]:
    asked = stage.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    return {place.partition: place.offset for place in asked[group].result(30).topic_partitions if place.offset > 0}


def setting(stage: Stage, topic: str, name: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return str(stage.admin.describe_configs([resource])[resource].result(30)[name].value)
