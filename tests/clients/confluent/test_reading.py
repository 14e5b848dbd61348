"""Where a confluent-kafka consumer reads: seeks, times, watermarks, pauses, and topics that go away under it."""

import time

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.confluent.conftest import NewConsumer, NewProducer, NewTopicFixture
from tests.clients.confluent.reading import produce, read, read_partition
from tests.clients.patience import until
from tests.clients.stories import story


@story("seek")
def test_seek_to_start_end_and_offset(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    producer = new_producer()
    produce(producer, topic, [b"%d" % number for number in range(10)])
    consumer = new_consumer()
    assert [message.value() for message in read_partition(consumer, topic, 3, offset=7)] == [b"7", b"8", b"9"]
    consumer.seek(TopicPartition(topic, 0, OFFSET_BEGINNING))
    assert read(consumer, 1)[0].offset() == 0
    consumer.seek(TopicPartition(topic, 0, 4))
    assert read(consumer, 1)[0].offset() == 4
    consumer.seek(TopicPartition(topic, 0, OFFSET_END))
    assert consumer.poll(0.5) is None
    produce(producer, topic, [b"new"])
    assert read(consumer, 1)[0].value() == b"new"


@story("seek")
def test_offset_out_of_range_is_reset_as_asked(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    produce(new_producer(), topic, [b"first"])
    assert read_partition(new_consumer(), topic, 1, offset=1000)[0].value() == b"first"


@story("seek-by-time")
def test_offsets_for_times_are_the_first_at_or_after(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    producer = new_producer()
    start_ms = int(time.time() * 1000) - 3_600_000
    for number in range(10):
        produce(producer, topic, [b"%d" % number], timestamp=start_ms + number * 1000)
    consumer = new_consumer()

    def offset_at(stamp_ms: int) -> int:
        offset: int = consumer.offsets_for_times([TopicPartition(topic, 0, stamp_ms)], 10)[0].offset
        return offset

    assert offset_at(start_ms - 5) == 0
    assert offset_at(start_ms + 3000) == 3
    assert offset_at(start_ms + 3001) == 4
    assert offset_at(start_ms + 60_000) == OFFSET_END
    assert read_partition(consumer, topic, 1, offset=offset_at(start_ms + 5500))[0].value() == b"6"


@story("pause")
def test_paused_partition_is_silent_until_resumed(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic(partitions=2)
    producer = new_producer()
    consumer = new_consumer()
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    consumer.pause([TopicPartition(topic, 0)])
    for partition in range(2):
        produce(producer, topic, [b"%d" % partition], partition=partition)
    assert [message.value() for message in read(consumer, 1)] == [b"1"]
    assert consumer.poll(0.5) is None
    consumer.resume([TopicPartition(topic, 0)])
    assert [message.value() for message in read(consumer, 1)] == [b"0"]


@story("watermarks")
def test_watermarks_are_first_and_next_offset(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    consumer = new_consumer()
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 0)
    produce(new_producer(), topic, [b"a", b"b", b"c"])
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 3)


@story("recreated-topic")
def test_live_consumer_reads_a_topic_made_again(
    admin: AdminClient, new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    produce(new_producer(), topic, [b"old"] * 5)
    consumer = new_consumer(topic_metadata_refresh_interval_ms=200)
    consumer.subscribe([topic])
    read(consumer, 5)
    admin.delete_topics([topic])[topic].result(30)
    until("the topic is gone", lambda: topic not in admin.list_topics(timeout=10).topics)
    new_topic(name=topic)
    produce(new_producer(), topic, [b"new"])
    assert read(consumer, 1)[0].value() == b"new"
