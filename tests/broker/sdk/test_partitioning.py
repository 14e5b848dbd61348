"""One key has one home: our hash, Java's published values and librdkafka on a real broker agree."""

from collections import Counter
from random import Random

import confluent_kafka

from headrace.sdk import Message, Producer, SdkError
from headrace.testing.local_broker import LocalBroker
from headrace.wire.partitioning import partition_for_key

from .topics import create_topic

PARTITIONS = 12


def keys(count: int) -> list[bytes]:
    """Keys of all lengths from nothing on, so that every tail of the hash is met."""
    dice = Random(2024)
    return [dice.randbytes(number % 40) for number in range(count)]


def test_ten_thousand_keys_go_where_librdkafka_sends_them(broker: LocalBroker) -> None:
    create_topic(broker, "keyed", PARTITIONS)
    homes: list[tuple[bytes, int]] = []

    def delivered(error: SdkError | None, receipt: Message) -> None:
        assert error is None
        homes.append((receipt.key or b"", receipt.partition))

    with Producer(broker.bootstrap, profile="throughput") as producer:
        for key in keys(10_000):
            producer.send("keyed", b"", key=key, on_delivery=delivered)
    assert len(homes) == 10_000
    assert [home for home in homes if home[1] != partition_for_key(home[0], PARTITIONS)] == []
    assert all(partition_for_key(key, 97) == confluent_kafka.murmur2(key, 97) for key, _ in homes)


def test_without_a_key_partitions_fill_evenly(broker: LocalBroker) -> None:
    create_topic(broker, "even", 4)
    with Producer(broker.bootstrap, profile="throughput") as producer:
        for _ in range(40_000):
            producer.send("even", b"")
    probe = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "probe"})
    counts = [probe.get_watermark_offsets(confluent_kafka.TopicPartition("even", each))[1] for each in range(4)]
    probe.close()
    assert sum(counts) == 40_000
    assert all(abs(count - 10_000) <= 1_000 for count in counts), counts


def test_a_partition_can_be_named(broker: LocalBroker) -> None:
    create_topic(broker, "named", 4)
    with Producer(broker.bootstrap) as producer:
        assert [producer.send_and_wait("named", "v", key="k", partition=each).partition for each in range(4)] == [
            0,
            1,
            2,
            3,
        ]


def test_a_function_can_choose_the_partition(broker: LocalBroker) -> None:
    create_topic(broker, "chosen", 4)
    asked: list[tuple[bytes | None, int]] = []

    def by_length(key: bytes | None, partition_count: int) -> int:
        asked.append((key, partition_count))
        return len(key or b"") % partition_count

    with Producer(broker.bootstrap, partitioner=by_length) as producer:
        homes = Counter(producer.send_and_wait("chosen", "v", key="x" * length).partition for length in range(8))
        assert producer.send_and_wait("chosen", "v", key="xxx", partition=0).partition == 0  # a named one wins
    assert homes == {0: 2, 1: 2, 2: 2, 3: 2}
    assert asked[3] == (b"xxx", 4)
    assert len(asked) == 8
