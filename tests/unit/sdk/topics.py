"""Topics and messages that the tests of the SDK work on."""

from confluent_kafka.admin import AdminClient, NewTopic

from headrace.sdk import Producer
from headrace.testing.local_broker import LocalBroker


def create_topic(broker: LocalBroker, name: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(10)


def fill(broker: LocalBroker, topic: str, count: int, first: int = 0) -> None:
    """Values are the numbers from `first` on, as text; in one partition, offsets are the same numbers."""
    with Producer(broker.bootstrap) as producer:
        for number in range(first, first + count):
            producer.send(topic, str(number), key=str(number))
