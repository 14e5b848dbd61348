"""Records that a topic cannot take: the client learns which of a batch they were (KIP-467)."""

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headrace.testing.local_broker import LocalBroker


def test_of_a_batch_for_a_compacted_topic_only_those_without_a_key_are_called_invalid(broker: LocalBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topic = NewTopic("table", 1, config={"cleanup.policy": "compact"})
    admin.create_topics([topic])["table"].result(30)
    told: dict[int, int] = {}

    def note(error: KafkaError | None, message: Message) -> None:
        told[int(message.value() or b"")] = 0 if error is None else error.code()

    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 500, "enable.idempotence": False})
    for number in range(10):
        producer.produce("table", str(number), None if number % 5 == 0 else b"key", on_delivery=note)
    assert producer.flush(30) == 0
    invalid, neighbour = KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD
    assert told == {number: invalid if number % 5 == 0 else neighbour for number in range(10)}
