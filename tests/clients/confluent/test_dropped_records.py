"""A confluent-kafka consumer on topics whose offsets do not all have a record: it reads on, and its lag becomes 0."""

from confluent_kafka import TopicPartition

from tests.clients.confluent.conftest import NewConsumer, NewProducer, NewTopicFixture
from tests.clients.confluent.reading import produce, read, read_partition
from tests.clients.patience import until
from tests.clients.stories import story

COUNT = 40
COMPACTED = {"cleanup_policy": "compact", "segment_bytes": "100", "min_cleanable_dirty_ratio": "0"}


def reads_to_the_end(new_consumer: NewConsumer, new_producer: NewProducer, topic: str, newest: bytes) -> None:
    """A consumer from the start comes to the end without an error, and to what is produced after that."""
    consumer, place = new_consumer(), TopicPartition(topic, 0)
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []

    def at_the_end() -> bool:
        for message in consumer.consume(COUNT, 0.1):
            assert message.error() is None, message.error()
            values.append(message.value())
        return bool(consumer.position([place])[0].offset == COUNT)

    until("the position is the end", at_the_end)
    assert values[-1] == newest
    assert consumer.commit(asynchronous=False)[0].offset == COUNT
    assert consumer.get_watermark_offsets(place, 10)[1] == COUNT
    produce(new_producer(), topic, [b"after"], key=b"another")
    assert read(consumer, 1)[0].value() == b"after"


@story("dropped-records")
def test_single_duplicates_are_read_past(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic(headrace_dedup_window_ms="600000")
    producer = new_producer()
    for _ in range(COUNT):
        produce(producer, topic, [b"same"], headers={"headrace.id": b"same"})
    assert len(read_partition(new_consumer(), topic, 1)) == 1
    reads_to_the_end(new_consumer, new_producer, topic, b"same")


@story("dropped-records")
def test_compacted_segments_are_read_past(
    new_topic: NewTopicFixture, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    topic = new_topic(**COMPACTED)
    producer = new_producer()
    for number in range(COUNT):
        produce(producer, topic, [b"%d" % number], key=b"k")
    until(
        "it is compacted",
        lambda: read_partition(new_consumer(), topic, 1)[0].offset() == COUNT - 2,
    )
    reads_to_the_end(new_consumer, new_producer, topic, b"%d" % (COUNT - 1))
