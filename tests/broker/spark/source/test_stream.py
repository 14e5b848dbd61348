"""A stream reads on: limits, delays, topics that grow, shrink and vanish, and progress that a group can see."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Consumer
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from headrace.model.failure import Failure
from headrace.spark.source.data_loss import DataLoss
from tests.broker.spark.source.world import Source, Stream, values
from tests.spark.topics import Topics


def test_a_stream_begins_at_the_end_and_reads_what_comes(topics: Topics, source: Source) -> None:
    topic = topics.create("news", 2)
    topics.fill(topic, 0, ["old"])
    query = source.stream(subscribe=topic)
    assert query.start == {topic: {"0": 1, "1": 0}}
    assert query.rows() == []
    topics.fill(topic, 1, ["new"])
    assert values(query.rows()) == ["new"]
    assert query.start == query.reader.reportLatestOffset() == {topic: {"0": 1, "1": 1}}


def test_beginnings_are_named_as_in_a_batch(topics: Topics, source: Source) -> None:
    topic = topics.create("past", retention_ms="-1")
    topics.send(topic, 0, [{"value": str(turn), "timestamp": 1000 + turn} for turn in range(5)])
    for options, first in (
        ({"startingOffsets": "earliest"}, "0"),
        ({"startingOffsets": json.dumps({topic: {"0": 2}})}, "2"),
        ({"startingTimestamp": "1003"}, "3"),
        ({"startingOffsetsByTimestamp": json.dumps({topic: {"0": 1004}})}, "4"),
    ):
        assert values(source.stream(subscribe=topic, **options).rows())[0] == first


def test_a_limit_makes_small_batches_in_proportion(topics: Topics, source: Source) -> None:
    topic = topics.create("much", 2)
    topics.fill(topic, 0, [f"a{turn}" for turn in range(30)])
    topics.fill(topic, 1, [f"b{turn}" for turn in range(10)])
    query = source.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=16)
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(16)
    sizes = []
    read: list[str] = []
    while rows := query.rows():
        sizes.append(len(rows))
        read += values(rows)
    assert sizes == [16, 16, 8]
    assert sorted(read) == sorted([f"a{turn}" for turn in range(30)] + [f"b{turn}" for turn in range(10)])
    assert len(source.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=16).rows(
        ReadAllAvailable()
    )) == 40  # fmt: skip


def test_a_batch_waits_for_enough_records_but_not_for_ever(topics: Topics, source: Source) -> None:
    topic = topics.create("drops")
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": 5}
    patient, hasty = source.stream(**options, maxTriggerDelay="1h"), source.stream(**options, maxTriggerDelay="0ms")
    assert patient.reader.getDefaultReadLimit() == ReadMinRows(5)
    topics.fill(topic, 0, ["first"])
    assert values(patient.rows()) == ["first"]  # nothing has been waited for yet
    assert values(hasty.rows()) == ["first"]
    topics.fill(topic, 0, ["a", "b"])
    assert patient.rows() == []
    assert values(hasty.rows()) == ["a", "b"]
    topics.fill(topic, 0, ["c", "d", "e"])
    assert values(patient.rows()) == ["a", "b", "c", "d", "e"]


def test_available_now_ends_where_the_topics_ended(topics: Topics, source: Source) -> None:
    topic = topics.create("now")
    topics.fill(topic, 0, ["a", "b", "c"])
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 2, "minOffsetsPerTrigger": 100}
    query = source.stream(subscribe=topic, **options)
    query.reader.prepareForTriggerAvailableNow()
    topics.fill(topic, 0, ["late"])
    topics.grow(topic, 2)
    topics.fill(topic, 1, ["later"])
    assert [values(query.rows()) for _ in range(3)] == [["a", "b"], ["c"], []]
    again = Stream(source.stream(subscribe=topic, startingOffsets="earliest").reader, query.start)
    assert sorted(values(again.rows())) == ["late", "later"]


def test_small_ranges_share_a_task_and_wishes_are_kept(topics: Topics, source: Source) -> None:
    topic = topics.create("wide", 6)
    for partition in range(6):
        topics.fill(topic, partition, [f"{partition}"])
    assert [len(task) for task in source.stream(subscribe=topic, startingOffsets="earliest").batch()] == [6]
    wishful = source.stream(subscribe=topic, startingOffsets="earliest", minPartitions=4)
    tasks = wishful.batch()
    assert len(tasks) == 4
    assert sum(map(len, tasks)) == 6


def test_new_partitions_and_new_topics_are_read_from_their_beginning(topics: Topics, source: Source) -> None:
    first = topics.create("first")
    query = source.stream(subscribePattern=first.removesuffix("first") + ".*")
    topics.grow(first, 3)
    topics.fill(first, 2, ["grown"])
    second = topics.create("second")
    topics.fill(second, 0, ["made"])
    assert sorted(values(query.rows())) == ["grown", "made"]
    assert query.start == {first: {"0": 0, "1": 0, "2": 1}, second: {"0": 1}}


def test_a_topic_that_vanishes_is_a_loss_or_passed_over(topics: Topics, source: Source) -> None:
    topic, other = topics.create("doomed"), topics.create("kept")
    topics.fill(topic, 0, ["a"])
    options = {"subscribe": f"{topic},{other}", "startingOffsets": "earliest"}
    strict, lenient = source.stream(**options), source.stream(**options, failOnDataLoss="false")
    strict.rows()
    lenient.rows()
    topics.delete(topic)
    topics.fill(other, 0, ["b"])
    with pytest.raises(
        DataLoss, match=f"partition 0 of topic {topic} was to be read from offset 1, but it no longer exists"
    ):
        strict.rows()
    assert values(lenient.rows()) == ["b"]


def test_a_topic_that_was_created_anew_is_a_loss(topics: Topics, source: Source) -> None:
    topic = topics.create("again")
    topics.fill(topic, 0, ["a", "b", "c"])
    query = source.stream(subscribe=topic, startingOffsets="earliest", kafka__default__api__timeout__ms=300)
    query.rows()
    topics.delete(topic)
    topics.create("again")
    topics.fill(topic, 0, ["x"])
    with pytest.raises(DataLoss, match=f"topic {topic} was to be read from offset 3, but it ends at offset 1"):
        query.rows()


def test_a_checkpoint_of_another_query_is_refused(topics: Topics, source: Source) -> None:
    reader = source.stream(subscribe=topics.create("any")).reader
    with pytest.raises(Failure, match="belongs to another query"):
        reader.latestOffset({"logOffset": 5}, ReadAllAvailable())  # type: ignore[dict-item]


def test_progress_is_committed_for_the_group(topics: Topics, source: Source) -> None:
    topic = topics.create("billed", 2)
    topics.fill(topic, 0, ["a", "b"])
    query = source.stream(subscribe=topic, startingOffsets="earliest", group__id="billing")
    assert len(query.rows()) == 2
    assert topics.committed("billing", topic, 2) == [0, 0]  # the batch is planned; Spark may still be at it
    topics.fill(topic, 1, ["c"])
    assert len(query.rows()) == 1
    assert topics.committed("billing", topic, 2) == [2, 0]
    assert query.rows() == []
    assert topics.committed("billing", topic, 2) == [2, 1]


def test_a_group_with_members_takes_no_progress(topics: Topics, source: Source) -> None:
    topic = topics.create("busy")
    topics.fill(topic, 0, ["a"])
    settings = {"group.id": "busy-group", "auto.offset.reset": "earliest"}
    member = Consumer({"bootstrap.servers": topics.bootstrap} | settings)
    try:
        member.subscribe([topic])
        assert member.poll(60) is not None, "the member got no record within a minute"
        query = source.stream(subscribe=topic, startingOffsets="earliest", group__id="busy-group")
        with pytest.raises(Failure, match="group busy-group has members"):
            query.rows()
    finally:
        member.close()
