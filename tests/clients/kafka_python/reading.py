"""Reading and producing with kafka-python in a bounded way."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord

from tests.clients.patience import until

Shares = list[set[tuple[str, int]]]


def subscribe(consumer: KafkaConsumer, topics: list[str]) -> None:
    """Subscribes once the client knows the topics.

    A group leader of this client that has not seen a topic's metadata yet gives none of it to anybody, and does not
    think again when the metadata comes.
    """
    for topic in topics:
        until(f"{topic} is known", lambda topic=topic: consumer.partitions_for_topic(topic))
    consumer.subscribe(topics)


def read(consumer: KafkaConsumer, count: int) -> list[ConsumerRecord]:
    """The next `count` records."""
    records: list[ConsumerRecord] = []

    def enough() -> bool:
        for batch in consumer.poll(timeout_ms=100, max_records=count - len(records)).values():
            records.extend(batch)
        return len(records) >= count

    until(f"{count} records read", enough, pause_s=0)
    return records


def read_partition(
    consumer: KafkaConsumer, topic: str, count: int, partition: int = 0, offset: int = 0
) -> list[ConsumerRecord]:
    place = TopicPartition(topic, partition)
    consumer.assign([place])
    consumer.seek(place, offset)
    return read(consumer, count)


def produce(producer: KafkaProducer, topic: str, values: Iterable[Any], **fields: Any) -> list[Any]:
    """Produces the values and returns what the broker said of each."""
    futures = [producer.send(topic, value=value, **fields) for value in values]
    producer.flush(timeout=30)
    return [future.get(timeout=30) for future in futures]


def settle(members: list[KafkaConsumer], fair: Callable[[Shares], bool]) -> Shares:
    """Polls all members, each in its thread, until their shares look `fair`, and returns the shares.

    A member that polls may wait for the others to join, so one thread for all would stand still until the timeout.
    """

    def shares() -> Shares | None:
        threads = [threading.Thread(target=member.poll, kwargs={"timeout_ms": 200}) for member in members]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        held = [{(place.topic, place.partition) for place in member.assignment()} for member in members]
        return held if fair(held) else None

    return until("the group shares out its partitions", shares, pause_s=0) or []


def split_evenly(partitions: int) -> Callable[[Shares], bool]:
    """Every partition has exactly one holder, and nobody has two more than anybody else."""

    def fair(shares: Shares) -> bool:
        sizes = [len(share) for share in shares]
        return sum(sizes) == partitions == len(set().union(*shares)) and max(sizes) - min(sizes) <= 1

    return fair
