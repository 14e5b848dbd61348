"""One key has one home: our hash, Java's published values and librdkafka on a real broker agree."""

from collections import Counter
from random import Random

import confluent_kafka
import pytest

from headrace.sdk import BadMessage, Message, Producer, SdkError
from headrace.sdk.partitioner import COUNT_GOOD_FOR_S, PartitionChoice
from headrace.testing.local_broker import LocalBroker
from headrace.wire.partitioning import murmur2, partition_for_key

from .topics import create_topic

PARTITIONS = 12


@pytest.mark.parametrize(
    ("key", "java"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_the_one_that_the_java_client_publishes(key: bytes, java: int) -> None:
    assert murmur2(key) == java


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


def test_a_choice_outside_the_topic_is_refused_with_its_bounds() -> None:
    choice = PartitionChoice(lambda key, count: count, lambda topic: 3, FixedClock())
    with pytest.raises(BadMessage, match="chose 3 for t, which has partitions 0 to 2"):
        choice.choose("t", None)


def test_a_topic_that_grew_is_used_in_full_after_a_minute() -> None:
    clock, counts = FixedClock(), iter((2, 5))
    choice = PartitionChoice(lambda key, count: count - 1, lambda topic: next(counts), clock)
    assert [choice.choose("t", None), choice.choose("t", None)] == [1, 1]
    clock.now_s += COUNT_GOOD_FOR_S
    assert choice.choose("t", None) == 4


class FixedClock:
    """A clock that the test sets."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s
