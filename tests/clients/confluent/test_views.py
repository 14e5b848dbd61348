"""Views as confluent-kafka makes and reads them: topics that are created with settings."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.confluent.conftest import NewConsumer, NewProducer, NewTopicFixture, partitions_of
from tests.clients.confluent.reading import produce
from tests.clients.own_features import TAG, TAGGED, VIEWS
from tests.clients.patience import until
from tests.clients.stories import story

PATIENCE_S = 30
NewView = Callable[..., str]


@pytest.fixture
def new_view(admin: AdminClient, new_topic: NewTopicFixture, unique: Callable[[str], str]) -> Iterator[NewView]:
    """Makes views, and deletes them before their bases go."""
    made: list[str] = []

    def create(base: str, tags: str, match: str) -> str:
        settings = {"headrace.view.of": base, "headrace.view.tags": tags, "headrace.view.match": match}
        view = unique("view")
        admin.create_topics([NewTopic(view, -1, -1, config=settings)])[view].result(PATIENCE_S)
        made.append(view)
        until(f"{view} is known", lambda: partitions_of(admin, view) == [0])
        return view

    yield create
    for deleted in admin.delete_topics(made).values() if made else ():
        deleted.result(PATIENCE_S)


def read_to_the_end(consumer: Consumer, topic: str, end: int) -> list[Message]:
    """A member reads up to the end, and commits it."""
    messages, place = [], TopicPartition(topic, 0)
    consumer.subscribe([topic])

    def at_the_end() -> bool:
        for message in consumer.consume(100, 0.1):
            assert message.error() is None, message.error()
            messages.append(message)
        return bool(consumer.position([place])[0].offset == end)

    until("the position is the end", at_the_end)
    assert consumer.get_watermark_offsets(place, 10) == (0, end)
    consumer.commit(asynchronous=False)
    assert consumer.committed([place], 10)[0].offset == end
    return messages


@story("views")
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_groups_read_the_records_of_a_view_at_the_offsets_of_its_base(
    codec: str, new_topic: NewTopicFixture, new_view: NewView, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    base, producer = new_topic(headrace_tags_enable="true"), new_producer(compression_type=codec, linger_ms=50)
    for value, tags in TAGGED:
        producer.produce(base, value, partition=0, headers=[(TAG, tag) for tag in tags])
    assert producer.flush(PATIENCE_S) == 0
    for tags, match, numbers in VIEWS:
        view = new_view(base, tags, match)
        messages = read_to_the_end(new_consumer(), view, len(TAGGED))
        found = [(message.topic(), message.offset(), message.value()) for message in messages]
        assert found == [(view, number, b"%d" % number) for number in numbers]
        with pytest.raises(AssertionError, match="TOPIC_EXCEPTION"):
            produce(producer, view, [b"refused"], partition=0)


@story("views")
def test_a_view_of_a_view_or_of_a_topic_without_tags_is_refused(new_topic: NewTopicFixture, new_view: NewView) -> None:
    view = new_view(new_topic(headrace_tags_enable="true"), "red", "any")
    for base in (view, new_topic()):
        with pytest.raises(KafkaException) as error:
            new_view(base, "red", "any")
        assert error.value.args[0].code() == KafkaError.INVALID_CONFIG


@story("view-transactions")
def test_readers_of_committed_records_get_them_from_a_view_too(
    new_topic: NewTopicFixture,
    new_view: NewView,
    new_producer: NewProducer,
    new_consumer: NewConsumer,
    unique: Callable[[str], str],
) -> None:
    base = new_topic(headrace_tags_enable="true")
    view, producer = new_view(base, "red", "any"), new_producer(transactional_id=unique("id"))
    producer.init_transactions(PATIENCE_S)
    for value in (b"kept", b"lost"):
        producer.begin_transaction()
        produce(producer, base, [value, value], partition=0, headers=[(TAG, b"red")])
        produce(producer, base, [b"green"], partition=0, headers=[(TAG, b"green")])
        if value == b"kept":
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
    # Three records and a marker each.
    careful = read_to_the_end(new_consumer(isolation_level="read_committed"), view, 8)
    assert [message.value() for message in careful] == [b"kept"] * 2
    hasty = read_to_the_end(new_consumer(isolation_level="read_uncommitted"), view, 8)
    assert [message.value() for message in hasty] == [b"kept"] * 2 + [b"lost"] * 2
