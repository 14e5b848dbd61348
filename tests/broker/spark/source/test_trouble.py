"""Reading when something is wrong: lost records, transactions, brokers that go away, bytes that rot."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from headrace.model.failure import Failure
from headrace.spark.source.data_loss import DataLoss
from headrace.spark.source.options import source_options
from headrace.spark.source.stream import StreamReader
from headrace.testing.local_broker import LocalBroker
from tests.broker.spark.source.world import Source, named, rows_of, schema_of, travelled, values
from tests.spark.topics import PATIENCE_S, Topics


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path / "broker") as running:
        yield running


@pytest.fixture
def topics(broker: LocalBroker) -> Topics:
    return Topics(broker.bootstrap, "trouble")


def test_records_that_were_deleted_are_a_loss_or_passed_over(topics: Topics, source: Source) -> None:
    topic = topics.create("aged")
    topics.fill(topic, 0, [str(turn) for turn in range(10)])
    topics.cut(topic, 0, 6)
    from_two = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 2}})}
    lost = f"partition 0 of topic {topic} was to be read from offset 2, but it begins at offset 6"
    with pytest.raises(DataLoss, match=lost):
        source.rows(**from_two)
    assert values(source.rows(**from_two, failOnDataLoss="false")) == ["6", "7", "8", "9"]
    beyond = {"subscribe": topic, "endingOffsets": json.dumps({topic: {"0": 50}})}
    with pytest.raises(DataLoss, match="was to be read from offset 50, but it ends at offset 10"):
        source.rows(**beyond)
    assert values(source.rows(subscribe=topic)) == ["6", "7", "8", "9"]


def test_records_that_are_deleted_between_planning_and_reading_are_a_loss(topics: Topics, source: Source) -> None:
    topic = topics.create("late")
    topics.fill(topic, 0, [str(turn) for turn in range(10)])
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    readers = [source.stream(**options).reader, source.stream(**options, failOnDataLoss="false").reader]
    start, end = {topic: {"0": 0}}, {topic: {"0": 8}}
    plans = [(reader, travelled(reader.partitions(start, end))) for reader in readers]
    topics.cut(topic, 0, 5)
    (strict, planned), (lenient, same) = plans
    with pytest.raises(DataLoss, match="was to be read from offset 0, but it begins at offset 5"):
        rows_of(strict, planned[0])
    assert values(rows_of(lenient, same[0])) == ["5", "6", "7"]


def test_read_committed_skips_aborted_and_open_transactions(topics: Topics, source: Source) -> None:
    topic = topics.create("ledger")

    def transaction(name: str, ending: Callable[[Producer], Any], *sent: str) -> None:
        producer = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": name, "linger.ms": 0})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        for value in sent:
            producer.produce(topic, value, partition=0)
        assert producer.flush(PATIENCE_S) == 0
        ending(producer)
        kept.append(producer)

    kept: list[Producer] = []  # a producer that is dropped aborts
    topics.fill(topic, 0, ["plain"])
    transaction("a", lambda producer: producer.commit_transaction(PATIENCE_S), "yes1", "yes2")
    transaction("b", lambda producer: producer.abort_transaction(PATIENCE_S), "no1", "no2")
    transaction("c", lambda producer: producer.commit_transaction(PATIENCE_S), "yes3")
    transaction("d", lambda producer: None, "open")
    topics.fill(topic, 0, ["behind"])

    committed = {"subscribe": topic, "kafka__isolation__level": "read_committed"}
    assert values(source.rows(**committed)) == ["plain", "yes1", "yes2", "yes3"]
    assert values(source.rows(subscribe=topic)) == ["plain", "yes1", "yes2", "no1", "no2", "yes3", "open", "behind"]
    query = source.stream(**committed, startingOffsets="earliest", maxOffsetsPerTrigger=1)
    read: list[str] = []
    while query.start != query.reader.latestOffset(query.start, query.reader.getDefaultReadLimit()):
        read += values(query.rows())
    assert read == ["plain", "yes1", "yes2", "yes3"]
    kept[-1].commit_transaction(PATIENCE_S)
    assert values(source.rows(**committed)) == ["plain", "yes1", "yes2", "yes3", "open", "behind"]


@pytest.mark.parametrize("ending", [LocalBroker.stop, LocalBroker.kill], ids=["restart", "kill"])
def test_a_broker_that_restarts_between_two_fetches_is_waited_for(
    broker: LocalBroker, topics: Topics, ending: Callable[[LocalBroker], None]
) -> None:
    topic = topics.create("steady", headrace_flush="fsync")
    sent = [f"{turn:05}" * 20 for turn in range(3000)]
    topics.fill(topic, 0, sent, **{"batch.size": 4096})
    options = {"kafka__bootstrap__servers": broker.bootstrap, "subscribe": topic, "kafka__fetch__max__bytes": 8192}
    reader = StreamReader(source_options(named(options | {"startingOffsets": "earliest"}), "stream"), schema_of())
    (planned,) = travelled(reader.partitions(*[{topic: {"0": offset}} for offset in (0, 3000)]))
    rows: list[dict[str, Any]] = []
    for number, batch in enumerate(reader.read(planned)):
        rows += batch.to_pylist()
        if number == 3:
            ending(broker)
            broker.start()
    assert values(rows) == sent
    assert [row["offset"] for row in rows] == list(range(3000))


def test_a_reader_that_loses_interest_leaves_nothing_on_the_way(topics: Topics, source: Source) -> None:
    topic = topics.create("peek")
    topics.fill(topic, 0, ["x" * 1000] * 200, **{"batch.size": 4096})
    reader = source.stream(subscribe=topic, startingOffsets="earliest", kafka__fetch__max__bytes=4096).reader
    (planned,) = travelled(reader.partitions({topic: {"0": 0}}, {topic: {"0": 200}}))
    peeking = reader.read(planned)
    assert next(peeking).num_rows < 200
    peeking.close()  # type: ignore[attr-defined]
    assert len(rows_of(reader, planned)) == 200


def test_a_topic_that_vanishes_while_it_is_read_is_a_loss(topics: Topics, source: Source) -> None:
    topic = topics.create("doomed")
    topics.fill(topic, 0, ["a"])
    options = {"subscribe": topic, "startingOffsets": "earliest", "kafka__default__api__timeout__ms": 300}
    readers = [source.stream(**options).reader, source.stream(**options, failOnDataLoss="false").reader]
    plans = [travelled(reader.partitions({topic: {"0": 0}}, {topic: {"0": 1}})) for reader in readers]
    topics.delete(topic)
    with pytest.raises(DataLoss, match=f"topic {topic} was to be read from offset 0, but it no longer exists"):
        rows_of(readers[0], plans[0][0])
    assert rows_of(readers[1], plans[1][0]) == []
    topics.create("doomed")
    topics.fill(topic, 0, ["another"])
    with pytest.raises(DataLoss, match="but the topic was deleted and recreated"):
        rows_of(readers[0], plans[0][0])


def test_records_that_never_come_are_one_clear_error(topics: Topics, source: Source) -> None:
    topic = topics.create("short")
    topics.fill(topic, 0, ["a"])
    reader = source.stream(subscribe=topic, startingOffsets="earliest", kafka__default__api__timeout__ms=200).reader
    (planned,) = travelled(reader.partitions({topic: {"0": 0}}, {topic: {"0": 5}}))
    with pytest.raises(Failure, match=f"partition 0 of topic {topic} returned no records from offset 1"):
        rows_of(reader, planned)


def test_a_batch_that_rots_on_disk_is_named(broker: LocalBroker, topics: Topics, source: Source) -> None:
    topic = topics.create("rot")
    topics.fill(topic, 0, ["sound"])
    topics.fill(topic, 0, ["rotten"])
    segment = next(path for path in broker.data.rglob("*.log") if topic in str(path))
    broker.stop()
    segment.write_bytes(segment.read_bytes().replace(b"rotten", b"rodent"))
    broker.start()
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    reader = source.stream(**options).reader
    (planned,) = travelled(reader.partitions({topic: {"0": 0}}, {topic: {"0": 2}}))
    with pytest.raises(Failure, match=f"partition 0 of topic {topic} has a corrupt batch at or after offset"):
        rows_of(reader, planned)
    unchecked = source.stream(**options, kafka__check__crcs="false").reader
    assert values(rows_of(unchecked, planned)) == ["sound", "rodent"]


def test_a_connection_that_was_lost_between_two_tasks_is_made_again(
    broker: LocalBroker, topics: Topics, source: Source
) -> None:
    topic = topics.create("kept")
    topics.fill(topic, 0, ["a"])
    assert values(source.rows(subscribe=topic)) == ["a"]
    broker.restart()
    assert values(source.rows(subscribe=topic)) == ["a"]
