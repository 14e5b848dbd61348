"""One task of the sink: rows arrive once and in order however the connection fails, and refusals are one clear line."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import Consumer

from headrace.model.failure import Failure
from headrace.spark.sink.options import AT_LEAST_ONCE
from headrace.testing.local_broker import LocalBroker
from headrace.wire.partitioning import partition_for_key
from tests.broker.spark.sink.world import (
    BrokerElsewhere,
    CrashingNet,
    Driver,
    any_broker,
    arrow,
    committed,
    create_topic,
    needs_headrace,
    sink_options,
)

RUN = "f" * 32
names = (f"rows-{uuid.uuid4()}" for _ in itertools.count())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker | BrokerElsewhere]:
    with any_broker(tmp_path_factory.mktemp("sink")) as running:
        yield running


def new_driver(broker: LocalBroker, partitions: int = 3, **changes: object) -> Driver:
    topic = next(names)
    create_topic(broker.bootstrap, topic, partitions)
    return Driver(sink_options(broker.bootstrap, topic, **changes))


def messages(broker: LocalBroker, topic: str, count: int) -> list[tuple[object, ...]]:
    """What a consumer of another make gets: (partition, key, value, headers, timestamp)."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"readers-of-{topic}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    found: list[tuple[object, ...]] = []
    for _ in range(120):
        for message in consumer.consume(count - len(found), 0.5):
            assert message.error() is None
            found.append(
                (message.partition(), message.key(), message.value(), message.headers(), message.timestamp()[1])
            )
        if len(found) == count:
            consumer.close()
            return found
    raise AssertionError(f"{len(found)} of {count} messages came within a minute")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("delivery", ["exactly-once", AT_LEAST_ONCE])
def test_rows_arrive_once_and_in_order_whichever_request_loses_its_connection(
    broker: LocalBroker, delivery: str, after: bool
) -> None:
    small = {"batch_bytes": 150, "request_bytes": 300}  # many batches and requests
    rows = [f"row {number:03}" for number in range(60)]
    for at in itertools.count():
        driver = new_driver(broker, 2, delivery=delivery, **small)
        net = CrashingNet(at, after=after, breaks=True)
        told = driver.write(0, 0, RUN, [arrow(rows[:30]), arrow(rows[30:])], net)
        assert told.rows == 60
        driver.commit([told])
        assert committed(broker.bootstrap, driver.options.topic) == rows, f"{at=}"
        if net.requests <= at:
            assert at > 10
            return


@needs_headrace
def test_a_broker_that_restarts_in_the_middle_of_a_task_is_survived(broker: LocalBroker) -> None:
    driver = new_driver(broker, batch_bytes=200)
    rows = [f"row {number:03}" for number in range(300)]

    def batches() -> Iterator[pa.RecordBatch]:
        yield arrow(rows[:100])
        broker.restart()
        yield arrow(rows[100:200])
        broker.kill()
        broker.restart()
        yield arrow(rows[200:])

    driver.commit([driver.write(0, 0, RUN, batches())])  # type: ignore[arg-type]
    assert committed(broker.bootstrap, driver.options.topic) == rows


def test_a_commit_goes_through_whichever_of_its_requests_loses_its_connection(broker: LocalBroker) -> None:
    for at in itertools.count():
        driver = new_driver(broker, 2)
        net = CrashingNet(at, after=True, breaks=True)
        told = driver.tasks(0, [["a"], ["b", "c"]])
        driver.commit(told, net)
        assert committed(broker.bootstrap, driver.options.topic) == ["a", "b", "c"], f"{at=}"
        if net.requests <= at:
            return


def test_every_column_arrives_as_what_it_means(broker: LocalBroker) -> None:
    driver = new_driver(broker, 3)
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    moment = pa.timestamp("us", "UTC")
    batch = pa.record_batch(
        {
            "key": pa.array(["k", None, ""], pa.string()),
            "value": pa.array([b"one", None, b""], pa.binary()),
            "headers": pa.array([[("h", b"1"), ("h", None)], None, []], headers),
            "timestamp": pa.array([1_700_000_000_123_456, 1_700_000_000_000_000, None], moment),
            "partition": pa.array([None, 2, None], pa.int32()),
            "tag": pa.array([["red", "blue"], [], None], pa.list_(pa.string())),
            "delay_ms": pa.array([1500, None, None], pa.int64()),
            "deliver_at": pa.array([None, 1_800_000_000_000_000, None], moment),
            "offset": pa.array([1, 2, 3], pa.int64()),
        }
    )
    driver.commit([driver.write(0, 0, RUN, [batch])])
    found = {message[2]: message for message in messages(broker, driver.options.topic, 3)}
    tags = [("headrace.tag", b"red"), ("headrace.tag", b"blue"), ("headrace.delay-ms", b"1500")]
    home = partition_for_key(b"k", 3)
    assert found[b"one"] == (home, b"k", b"one", [("h", b"1"), ("h", None), *tags], 1_700_000_000_123)
    assert found[None] == (2, None, None, [("headrace.deliver-at", b"1800000000000")], 1_700_000_000_000)
    assert found[b""][:4] == (partition_for_key(b"", 3), b"", b"", None)
    assert found[b""][4] > 1_700_000_000_123  # type: ignore[operator]


def test_each_row_goes_to_its_own_topic_unless_the_option_says_otherwise(broker: LocalBroker) -> None:
    one, other = new_driver(broker, 1), new_driver(broker, 4)
    names = [one.options.topic, other.options.topic]
    batch = arrow(["a", "b", "c"], topic=[names[0], names[1], names[0]])
    free = Driver(replace(one.options, topic=""))
    free.commit([free.write(0, 0, RUN, [batch.slice(1), batch.slice(0, 1)])])
    assert [committed(broker.bootstrap, name) for name in names] == [["a", "c"], ["b"]]
    other.commit([other.write(0, 0, RUN, [batch])])
    assert committed(broker.bootstrap, names[1]) == ["a", "b", "b", "c"]


@pytest.mark.parametrize("codec", range(1, 5))
def test_every_codec_can_be_read(broker: LocalBroker, codec: int) -> None:
    driver = new_driver(broker, 1, codec=codec)
    rows = [f"row {number:03} " + 50 * "x" for number in range(100)]
    driver.commit([driver.write(0, 0, RUN, [arrow(rows)])])
    assert [message[2].decode() for message in messages(broker, driver.options.topic, 100)] == rows  # type: ignore[attr-defined]


def test_a_missing_topic_is_one_line(broker: LocalBroker) -> None:
    driver = Driver(sink_options(broker.bootstrap, "nowhere"))
    with pytest.raises(Failure, match="topic nowhere does not exist: create it, or correct the name"):
        driver.run(0, [["a"]])


def test_a_row_that_is_too_large_is_one_line_and_the_rerun_goes_on(broker: LocalBroker) -> None:
    driver = new_driver(broker, 1)
    with pytest.raises(
        Failure, match=r"rejected a batch of 2000\d\d\d bytes with message_too_large: .*raise max\.message\.bytes"
    ):
        driver.run(0, [["a", 2_000_000 * "x"]])
    driver.again().run(0, [["a", "short"]])
    assert committed(broker.bootstrap, driver.options.topic) == ["a", "short"]


def test_a_partition_that_is_not_there_is_one_line(broker: LocalBroker) -> None:
    driver = new_driver(broker, 2)
    batch = arrow(["a"], partition=pa.array([2], pa.int32()))
    with pytest.raises(Failure, match=r"a row for topic rows-\S+ cannot be written: row 0 asks for partition 2 of 2"):
        driver.write(0, 0, RUN, [batch])


@needs_headrace
def test_a_broker_that_is_away_is_one_line_and_the_rerun_goes_on(broker: LocalBroker) -> None:
    driver = new_driver(broker, 2)
    told = driver.tasks(0, [["a"]])
    broker.stop()
    patient = driver.options
    driver.options = replace(patient, request_timeout_ms=300, delivery_timeout_ms=300)
    with pytest.raises(Exception, match=r"no broker of the cluster at .* answers"):
        driver.commit(told)
    with pytest.raises(Exception, match=r"no broker of the cluster at .* answers"):
        driver.again().run(0, [["a"]])
    broker.restart()
    driver.options = patient
    driver.again().run(0, [["a"]])
    assert committed(broker.bootstrap, driver.options.topic) == ["a"]


def test_at_least_once_needs_no_commit_and_no_decision(broker: LocalBroker) -> None:
    driver = new_driver(broker, delivery=AT_LEAST_ONCE)
    told = driver.tasks(0, [["a"], ["b"], []])
    assert [written.member for written in told] == [None] * 3
    assert committed(broker.bootstrap, driver.options.topic) == ["a", "b"]
