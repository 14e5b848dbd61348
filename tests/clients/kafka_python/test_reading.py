"""Where a kafka-python consumer reads: seeks, times, watermarks, pauses, and topics that go away under it."""

import contextlib
import time

from kafka import KafkaAdminClient, TopicPartition
from kafka.errors import TopicAlreadyExistsError

from tests.clients.kafka_python.conftest import NewConsumer, NewProducer, NewTopic
from tests.clients.kafka_python.reading import produce, read, read_partition, subscribe
from tests.clients.patience import until
from tests.clients.stories import story


@story("seek")
def test_seek_to_start_end_and_offset(
    new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    producer = new_producer()
    produce(producer, topic, [b"%d" % number for number in range(10)])
    consumer, place = new_consumer(), TopicPartition(topic, 0)
    assert [record.value for record in read_partition(consumer, topic, 3, offset=7)] == [b"7", b"8", b"9"]
    consumer.seek_to_beginning(place)
    assert read(consumer, 1)[0].offset == 0
    consumer.seek(place, 4)
    assert read(consumer, 1)[0].offset == 4
    assert consumer.position(place) == 5
    consumer.seek_to_end(place)
    assert consumer.position(place) == 10
    assert consumer.poll(timeout_ms=300) == {}
    produce(producer, topic, [b"new"])
    assert read(consumer, 1)[0].value == b"new"


@story("seek")
def test_offset_out_of_range_is_reset_as_asked(
    new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    produce(new_producer(), topic, [b"first"])
    assert read_partition(new_consumer(), topic, 1, offset=1000)[0].value == b"first"


@story("seek-by-time")
def test_offsets_for_times_are_the_first_at_or_after(
    new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    producer, place = new_producer(), TopicPartition(topic, 0)
    start_ms = int(time.time() * 1000) - 3_600_000
    for number in range(10):
        produce(producer, topic, [b"%d" % number], timestamp_ms=start_ms + number * 1000)
    consumer = new_consumer()

    def found(stamp_ms: int) -> tuple[int, int] | None:
        hit = consumer.offsets_for_times({place: stamp_ms})[place]
        return None if hit is None else (hit.offset, hit.timestamp)

    assert found(start_ms - 5) == (0, start_ms)
    assert found(start_ms + 3000) == (3, start_ms + 3000)
    assert found(start_ms + 3001) == (4, start_ms + 4000)
    assert found(start_ms + 60_000) is None
    assert read_partition(consumer, topic, 1, offset=6)[0].timestamp == start_ms + 6000


@story("pause")
def test_paused_partition_is_silent_until_resumed(
    new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic(partitions=2)
    producer, consumer = new_producer(), new_consumer()
    consumer.assign([TopicPartition(topic, partition) for partition in range(2)])
    consumer.pause(TopicPartition(topic, 0))
    for partition in range(2):
        produce(producer, topic, [b"%d" % partition], partition=partition)
    assert [record.value for record in read(consumer, 1)] == [b"1"]
    assert consumer.poll(timeout_ms=300) == {}
    consumer.resume(TopicPartition(topic, 0))
    assert [record.value for record in read(consumer, 1)] == [b"0"]


@story("watermarks")
def test_watermarks_are_first_and_next_offset(
    new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    consumer, place = new_consumer(), TopicPartition(topic, 0)
    assert (consumer.beginning_offsets([place]), consumer.end_offsets([place])) == ({place: 0}, {place: 0})
    produce(new_producer(), topic, [b"a", b"b", b"c"])
    assert (consumer.beginning_offsets([place]), consumer.end_offsets([place])) == ({place: 0}, {place: 3})
    read_partition(consumer, topic, 3)
    assert consumer.highwater(place) == 3


@story("recreated-topic")
def test_live_consumer_reads_a_topic_made_again(
    admin: KafkaAdminClient, new_topic: NewTopic, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic()
    produce(new_producer(allow_auto_create_topics=False), topic, [b"old"] * 5)
    consumer = new_consumer(allow_auto_create_topics=False)
    subscribe(consumer, [topic])
    read(consumer, 5)
    old_id = admin.describe_topics([topic])[0]["topic_id"]
    admin.delete_topics([topic])

    def made_again() -> bool:
        # This client may ask for the topic with auto-creation on, so somebody may have been faster.
        with contextlib.suppress(TopicAlreadyExistsError):
            new_topic(name=topic)
        described = admin.describe_topics([topic])[0]
        return described["error_code"] == 0 and described["topic_id"] != old_id

    until("the topic is there again", made_again)
    producer = new_producer()

    def next_values() -> list[bytes]:
        # This client takes the shorter log for a truncated one and goes on at its end, past what came before.
        produce(producer, topic, [b"new"])
        return [record.value for batch in consumer.poll(timeout_ms=100).values() for record in batch]

    assert until("a message of the new topic is read", next_values)[0] == b"new"
