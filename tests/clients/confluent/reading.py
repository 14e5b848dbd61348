"""Reading and producing with confluent-kafka in a bounded way."""

from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.clients.patience import until

EARLIEST = 0


def read(consumer: Consumer, count: int) -> list[Message]:
    """The next `count` messages; a topic that is not known yet is waited for, every other error is raised."""
    messages: list[Message] = []

    def enough() -> bool:
        for message in consumer.consume(count - len(messages), 0.1):
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise AssertionError(f"consumer error: {error}")
        return len(messages) >= count

    until(f"{count} messages read", enough)
    return messages


def read_partition(
    consumer: Consumer, topic: str, count: int, partition: int = 0, offset: int = EARLIEST
) -> list[Message]:
    consumer.assign([TopicPartition(topic, partition, offset)])
    return read(consumer, count)


def produce(producer: Producer, topic: str, values: Iterable[Any], **fields: Any) -> list[Message]:
    """Produces the values and returns their delivery reports, which must all be good."""
    reports: list[Message] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, f"not delivered: {error}"
        reports.append(message)

    wanted = 0
    for value in values:
        producer.produce(topic, value, on_delivery=delivered, **fields)
        wanted += 1
        if wanted % 1000 == 0:
            producer.poll(0)
    assert producer.flush(30) == 0, "messages were still waiting after 30 s"
    assert len(reports) == wanted
    return reports


def partitions_of(consumer: Consumer) -> set[tuple[str, int]]:
    return {(held.topic, held.partition) for held in consumer.assignment()}


def settle(members: list[Consumer], fair: Callable[[list[set[tuple[str, int]]]], bool]) -> list[set[tuple[str, int]]]:
    """Polls all members until their shares look `fair`, and returns the shares. Messages that come in are dropped."""

    def shares() -> list[set[tuple[str, int]]] | None:
        for member in members:
            member.poll(0.02)
        held = [partitions_of(member) for member in members]
        return held if fair(held) else None

    return until("the group shares out its partitions", shares, pause_s=0) or []


def split_evenly(partitions: int) -> Callable[[list[set[tuple[str, int]]]], bool]:
    """Every partition has exactly one holder, and nobody has two more than anybody else."""

    def fair(shares: list[set[tuple[str, int]]]) -> bool:
        sizes = [len(share) for share in shares]
        return sum(sizes) == partitions == len(set().union(*shares)) and max(sizes) - min(sizes) <= 1

    return fair
