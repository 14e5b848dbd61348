"""Topics and messages that the tests of the SDK work on."""

from collections.abc import Mapping

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from headrace.sdk import Producer
from headrace.testing.local_broker import LocalBroker
from tests.clients.patience import until


def create_topic(
    broker: LocalBroker, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=dict(settings or {}))])[name].result(10)


def fill(broker: LocalBroker, topic: str, count: int, first: int = 0) -> None:
    """Values are the numbers from `first` on, as text; in one partition, offsets are the same numbers."""
    with Producer(broker.bootstrap) as producer:
        for number in range(first, first + count):
            producer.send(topic, str(number), key=str(number))


def read_all(broker: LocalBroker, topic: str, partitions: int, isolation: str = "read_committed") -> list[str]:
    """Every value in the topic, sorted, once its transactions are over: a commit does not wait for its markers."""
    places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
    until(f"the transactions in {topic} to be over", lambda: _is_stable(broker, places))
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign(places)
    found: list[str] = []
    ended: set[int] = set()

    def read_on() -> bool:
        message = consumer.poll(0.1)
        if message is None:
            return False
        error = message.error()
        if error is None:
            found.append(message.value().decode())
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
        return len(ended) == partitions

    until(f"the end of {topic}", read_on, pause_s=0)
    consumer.close()
    return sorted(found)


def _is_stable(broker: LocalBroker, places: list[TopicPartition]) -> bool:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    ends = []
    for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        asked = admin.list_offsets({place: OffsetSpec.latest() for place in places}, isolation_level=level)
        ends.append({(place.topic, place.partition): future.result(10).offset for place, future in asked.items()})
    return ends[0] == ends[1]
