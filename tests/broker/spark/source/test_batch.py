"""A batch reads what its options say: every way to name topics, beginnings, ends and sizes."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual, Not

from headrace.model.failure import Failure
from headrace.model.tag_filter import MATCHES, TagFilter
from headrace.spark.source.batch import FilteringBatchReader
from headrace.spark.source.fetching import LiveRange
from headrace.spark.source.options import source_options
from headrace.spark.source.task import ReadTask
from headrace.testing.local_broker import LocalBroker
from tests.broker.spark.source.world import Source, schema_of, values
from tests.spark.topics import Topics

START_MS = 1_700_000_000_000


def letters(topics: Topics, partitions: int = 2, count: int = 10) -> str:
    """A topic whose records are called p0-0, p0-1 … and are a second apart."""
    topic = topics.create("letters", partitions, retention_ms="-1")
    for partition in range(partitions):
        topics.send(
            topic,
            partition,
            [{"value": f"p{partition}-{turn}", "timestamp": START_MS + 1000 * turn} for turn in range(count)],
        )
    return topic


def test_a_row_has_everything_that_a_record_has(topics: Topics, source: Source) -> None:
    topic = topics.create("all", retention_ms="-1")
    headers = [("h", b"x"), ("ü", b""), ("none", None)]
    topics.send(topic, 0, [{"value": b"v", "key": b"k", "timestamp": START_MS, "headers": headers}])
    topics.send(topic, 0, [{"value": None, "key": b"", "timestamp": START_MS}, {"value": b"", "key": None}])
    rows = source.rows(subscribe=topic)
    moment = datetime.datetime.fromtimestamp(START_MS / 1000, datetime.UTC)
    assert rows[0] == {
        "key": b"k", "value": b"v", "topic": topic, "partition": 0, "offset": 0, "timestamp": moment,
        "timestampType": 0, "headers": [{"key": name, "value": value} for name, value in headers],
    }  # fmt: skip
    assert [(row["key"], row["value"], row["headers"]) for row in rows[1:]] == [(b"", None, []), (None, b"", [])]
    assert source.rows(subscribe=topic, columns=["offset", "topic"])[2] == {"offset": 2, "topic": topic}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(topics: Topics, source: Source, codec: str) -> None:
    topic = topics.create("packed")
    sent = [f"value {turn} of a compressed batch" for turn in range(3000)]
    topics.fill(topic, 0, sent, **{"compression.type": codec})
    rows = source.rows(subscribe=topic, kafka__fetch__max__bytes=4096)
    assert values(rows) == sent
    assert [row["offset"] for row in rows] == list(range(3000))


def test_topics_are_named_by_list_by_pattern_or_by_partition(topics: Topics, source: Source) -> None:
    first, second = topics.create("one", 2), topics.create("two")
    topics.fill(first, 0, ["a"])
    topics.fill(first, 1, ["b"])
    topics.fill(second, 0, ["c"])
    stem = first.removesuffix("one")
    assert sorted(values(source.rows(subscribe=f"{first},{second}"))) == ["a", "b", "c"]
    assert sorted(values(source.rows(subscribePattern=f"{stem}(one|two)"))) == ["a", "b", "c"]
    assert values(source.rows(subscribePattern=f"{stem}tw.")) == ["c"]
    assert sorted(values(source.rows(assign=json.dumps({first: [1], second: [0]})))) == ["b", "c"]


def test_a_range_is_named_by_offsets(topics: Topics, source: Source) -> None:
    topic = letters(topics)
    middle = {
        "startingOffsets": json.dumps({topic: {"0": 3, "1": -2}}),
        "endingOffsets": json.dumps({topic: {"0": 5, "1": -1}}),
    }
    assert values(source.rows(subscribe=topic, **middle)) == ["p0-3", "p0-4", *(f"p1-{turn}" for turn in range(10))]
    same = json.dumps({topic: {"0": 4, "1": 4}})
    assert source.batch(subscribe=topic, startingOffsets=same, endingOffsets=same) == []


def test_a_range_is_named_by_times(topics: Topics, source: Source) -> None:
    topic = letters(topics)
    third, last = START_MS + 2500, START_MS + 9000
    found = values(source.rows(subscribe=topic, startingTimestamp=third, endingTimestamp=last))
    assert found == [f"p{partition}-{turn}" for partition in (0, 1) for turn in range(3, 9)]
    each = json.dumps({topic: {"0": last, "1": third}})
    found = values(source.rows(subscribe=topic, startingOffsetsByTimestamp=each))
    assert found == ["p0-9", *(f"p1-{turn}" for turn in range(3, 10))]
    late = {"subscribe": topic, "startingTimestamp": last + 1}
    with pytest.raises(Failure, match=f"partition 0 of topic {topic} has no record at or after {last + 1}"):
        source.rows(**late)
    assert source.rows(**late, startingOffsetsByTimestampStrategy="latest") == []
    assert len(source.rows(subscribe=topic, endingTimestamp=last + 1)) == 20


def test_tasks_are_as_many_and_as_large_as_wished(topics: Topics, source: Source) -> None:
    topic = letters(topics, count=100)
    assert [len(task) for task in source.batch(subscribe=topic)] == [100, 100]
    assert [len(task) for task in source.batch(subscribe=topic, minPartitions=5)] == [33, 33, 34, 50, 50]
    small = source.batch(subscribe=topic, maxRecordsPerPartition=30)
    assert [len(task) for task in small] == [25] * 8
    assert values([row for task in small for row in task]) == [f"p{p}-{turn}" for p in (0, 1) for turn in range(100)]


def test_tags_keep_records_by_their_tag_header(topics: Topics, source: Source) -> None:
    topic = topics.create("tagged")
    tags = [[b"red"], [b"blue"], [], [b"blue", b"red"]]
    topics.send(
        topic,
        0,
        [
            {"value": str(turn), "headers": [("headrace.tag", tag) for tag in found] + [("x", b"red")]}
            for turn, found in enumerate(tags)
        ],
    )
    assert values(source.rows(subscribe=topic, tags="red")) == ["0", "3"]
    assert values(source.rows(subscribe=topic, tags="blue,red")) == ["0", "1", "3"]
    assert values(source.rows(subscribe=topic, tags="green")) == []


def test_filters_become_ranges(topics: Topics, source: Source) -> None:
    topic = letters(topics)

    def moment(time_ms: int) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)

    def found(*filters: object) -> list[str]:
        return values(source.rows(filters, subscribe=topic))  # type: ignore[arg-type]

    offset, time = ("offset",), ("timestamp",)
    assert found(EqualTo(("partition",), 1), GreaterThan(offset, 7)) == ["p1-8", "p1-9"]
    assert found(In(("partition",), (0, 5)), LessThan(offset, 2)) == ["p0-0", "p0-1"]
    assert found(LessThanOrEqual(offset, 0)) == ["p0-0", "p1-0"]
    assert found(EqualTo(("topic",), "another")) == []
    assert found(GreaterThanOrEqual(time, moment(START_MS + 8500)), EqualTo(("partition",), 0)) == ["p0-9"]
    assert found(GreaterThan(time, moment(START_MS + 60_000))) == []
    # What producers date may come in any order, so an upper bound cuts nothing off; Spark drops what is too late.
    assert len(found(LessThan(time, moment(START_MS + 1000)))) == 20
    assert len(found(Not(EqualTo(("partition",), 1)), EqualTo(("value",), b"p0-0"))) == 20


def test_an_upper_time_bound_counts_where_the_broker_dates_records(topics: Topics, source: Source) -> None:
    topic = topics.create("dated", message_timestamp_type="LogAppendTime")
    topics.fill(topic, 0, ["a", "b"])
    rows = source.rows(subscribe=topic)
    assert {row["timestampType"] for row in rows} == {1}
    before = rows[0]["timestamp"] - datetime.timedelta(seconds=1)
    assert source.rows([LessThan(("timestamp",), before)], subscribe=topic) == []
    assert values(source.rows([LessThanOrEqual(("timestamp",), rows[-1]["timestamp"])], subscribe=topic)) == ["a", "b"]


def test_what_is_not_there_is_named(topics: Topics, source: Source) -> None:
    topic = letters(topics, partitions=1)
    for options, message in (
        ({"subscribe": "nowhere"}, "topic nowhere does not exist: create it"),
        ({"subscribePattern": "nowhere.*"}, "no topic matches 'nowhere"),
        ({"assign": json.dumps({topic: [3]})}, f"assign names {topic}-3, but topic {topic} has no such partition"),
        ({"subscribe": topic, "startingOffsets": '{"other": {"0": 1}}'}, "startingOffsets does not name"),
    ):
        with pytest.raises(Failure, match=message):
            source.rows(**options)


def test_an_empty_topic_has_no_tasks(topics: Topics, source: Source) -> None:
    assert source.batch(subscribe=topics.create("empty", 3)) == []


def test_a_broker_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        nowhere = broker.bootstrap
    with pytest.raises(Failure, match=f"no broker of the cluster at {nowhere} answers"):
        Source(nowhere).rows(subscribe="x", kafka__default__api__timeout__ms=300)


@pytest.mark.parametrize("tagged", [True, False])
def test_the_same_rows_come_whether_the_broker_filters_or_the_tasks(
    topics: Topics, source: Source, tagged: bool
) -> None:
    topic = topics.create(f"filtered-{tagged}", 2, **({"headrace_tags_enable": "true"} if tagged else {}))
    tags = [["red"], ["blue"], [], ["blue", "red"], ["big"]]
    for place in (0, 1):
        for first in (0, 40):
            records = [
                {"value": f"{place}-{at}", "headers": [("headrace.tag", tag.encode()) for tag in tags[at % 5]]}
                for at in range(first, first + 40)
            ]
            topics.send(topic, place, records)
    for asked in (["red"], ["red", "blue"], ["nobody"]):
        for match in MATCHES:
            filter_ = TagFilter(tuple(asked), match)
            expected = [f"{place}-{at}" for place in (0, 1) for at in range(80) if filter_.accepts(tags[at % 5])]
            found = source.rows(subscribe=topic, tags=",".join(asked), tagsMatch=match, minPartitions=5)
            assert values(found) == expected, (asked, match)
            assert {row["topic"] for row in found} <= {topic}
    reader = FilteringBatchReader(
        source_options({**source._base, "subscribe": topic, "tags": "red"}, "batch"), schema_of()
    )
    pieces = [piece for task in reader.partitions() if isinstance(task, ReadTask) for piece in task.pieces]
    through = {piece.view[0] if piece.view else None for piece in pieces if isinstance(piece, LiveRange)}
    assert through == {TagFilter(("red",)).view_name(topic) if tagged else None}
