"""Views as kafka-python makes and reads them: topics that are created with settings."""

from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import InvalidConfigurationError, InvalidTopicError

from tests.clients.kafka_python.conftest import NewConsumer, NewProducer, NewTopic
from tests.clients.kafka_python.reading import produce, subscribe
from tests.clients.own_features import TAG, TAGGED, VIEWS
from tests.clients.patience import until
from tests.clients.stories import story

NewView = Callable[..., str]


@pytest.fixture
def new_view(admin: KafkaAdminClient, new_topic: NewTopic, unique: Callable[[str], str]) -> Iterator[NewView]:
    """Makes views, and deletes them before their bases go."""
    made: list[str] = []

    def create(base: str, tags: str, match: str) -> str:
        view = unique("view")
        settings = {"headrace.view.of": base, "headrace.view.tags": tags, "headrace.view.match": match}
        # The counts are left to the broker.
        admin.create_topics({view: {"configs": settings}}, wait_for_metadata=True)
        made.append(view)
        return view

    yield create
    if made:
        admin.delete_topics(made)


def read_to_the_end(consumer: KafkaConsumer, topic: str, end: int) -> list[ConsumerRecord]:
    """A member reads up to the end, and commits it."""
    records, place = [], TopicPartition(topic, 0)
    subscribe(consumer, [topic])

    def at_the_end() -> bool:
        records.extend(consumer.poll(timeout_ms=100).get(place, ()))
        return place in consumer.assignment() and consumer.position(place) == end

    until("the position is the end", at_the_end, pause_s=0)
    assert consumer.end_offsets([place])[place] == end
    consumer.commit()
    assert consumer.committed(place) == end
    return records


@story("views")
def test_groups_read_the_records_of_a_view_at_the_offsets_of_its_base(
    new_topic: NewTopic, new_view: NewView, new_producer: NewProducer, new_consumer: NewConsumer
) -> None:
    base, producer = new_topic(headrace_tags_enable="true"), new_producer(compression_type="gzip", linger_ms=50)
    for value, tags in TAGGED:
        producer.send(base, value=value, partition=0, headers=[(TAG, tag) for tag in tags])
    producer.flush(timeout=30)
    for tags, match, numbers in VIEWS:
        view = new_view(base, tags, match)
        records = read_to_the_end(new_consumer(), view, len(TAGGED))
        found = [(record.topic, record.offset, record.value) for record in records]
        assert found == [(view, number, b"%d" % number) for number in numbers]
        with pytest.raises(InvalidTopicError):
            produce(producer, view, [b"refused"], partition=0)


@story("views")
def test_a_view_of_a_view_or_of_a_topic_without_tags_is_refused(new_topic: NewTopic, new_view: NewView) -> None:
    view = new_view(new_topic(headrace_tags_enable="true"), "red", "any")
    for base in (view, new_topic()):
        with pytest.raises(InvalidConfigurationError):
            new_view(base, "red", "any")


@story("view-transactions")
def test_readers_of_committed_records_get_them_from_a_view_too(
    new_topic: NewTopic,
    new_view: NewView,
    new_producer: NewProducer,
    new_consumer: NewConsumer,
    unique: Callable[[str], str],
) -> None:
    base = new_topic(headrace_tags_enable="true")
    view, producer = new_view(base, "red", "any"), new_producer(transactional_id=unique("id"))
    producer.init_transactions()
    for value in (b"kept", b"lost"):
        producer.begin_transaction()
        produce(producer, base, [value, value], partition=0, headers=[(TAG, b"red")])
        produce(producer, base, [b"green"], partition=0, headers=[(TAG, b"green")])
        if value == b"kept":
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    # Three records and a marker each.
    careful = read_to_the_end(new_consumer(isolation_level="read_committed"), view, 8)
    assert [record.value for record in careful] == [b"kept"] * 2
    hasty = read_to_the_end(new_consumer(isolation_level="read_uncommitted"), view, 8)
    assert [record.value for record in hasty] == [b"kept"] * 2 + [b"lost"] * 2
