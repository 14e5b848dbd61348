"""Options of the source: what they come to, and one clear line for each that is wrong."""

from __future__ import annotations

import pytest

from headrace.model.failure import Failure
from headrace.model.topic_partition import TopicPartition
from headrace.spark.source.options import Kind, SourceOptions, source_options
from headrace.spark.source.positions import (
    AtOffset,
    AtTime,
    Earliest,
    Latest,
    from_json,
    to_json,
)

BASE = {"kafka.bootstrap.servers": "a:1, b:2", "subscribe": "orders, returns"}
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def read(kind: Kind = "batch", **more: str) -> SourceOptions:
    return source_options(BASE | {name.replace("__", "."): value for name, value in more.items()}, kind)


def test_what_is_not_said_is_as_in_sparks_connector() -> None:
    batch, stream = read(), read("stream")
    assert batch.bootstrap == ("a:1", "b:2")
    assert batch.subscription.topics == ("orders", "returns")
    assert (batch.starting.everywhere, batch.ending.everywhere) == (Earliest(), Latest())
    assert stream.starting.everywhere == Latest()
    assert batch.fail_on_data_loss
    assert not batch.read_committed
    assert not batch.include_headers
    assert stream.max_trigger_delay_ms == 15 * 60_000
    assert batch.check_crcs


def test_everything_that_can_be_said_is_heard() -> None:
    said = read(
        "stream",
        startingOffsets='{"a": {"0": 23, "1": -2}}',
        maxOffsetsPerTrigger="1000",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="10 seconds",
        minPartitions="7",
        maxRecordsPerPartition="500",
        failOnDataLoss="false",
        includeHeaders="TRUE",
        kafka__isolation__level="read_committed",
        kafka__check__crcs="false",
        kafka__fetch__max__bytes="1048576",
        group__id="billing",
        tags="red, blue",
        archive="/lake",
    )
    assert dict(said.starting.each) == {A0: AtOffset(23), A1: Earliest()}
    assert (said.max_per_trigger, said.min_per_trigger, said.max_trigger_delay_ms) == (1000, 10, 10_000)
    assert (said.min_partitions, said.max_records_per_partition) == (7, 500)
    assert (said.fail_on_data_loss, said.include_headers, said.read_committed, said.check_crcs) == (
        False,
        True,
        True,
        False,
    )
    assert (said.fetch_bytes, said.group_id, said.tags, said.archive) == (
        1 << 20,
        "billing",
        (b"red", b"blue"),
        "/lake",
    )


def test_names_are_read_in_any_case_and_options_of_the_jvm_consumer_are_let_pass() -> None:
    assert read(STARTINGOFFSETS="Earliest", MINPARTITIONS="3").min_partitions == 3
    read(kafka__max__poll__records="500", groupIdPrefix="x", kafka__security__protocol="plaintext")


def test_a_time_for_all_comes_before_times_of_partitions_and_those_before_offsets() -> None:
    each = '{"a": {"0": 5}}'
    assert read(startingTimestamp="7", startingOffsetsByTimestamp=each).starting.everywhere == AtTime(7)
    assert dict(read(endingOffsetsByTimestamp=each, endingOffsets="latest").ending.each) == {A0: AtTime(5)}
    assert dict(read(startingOffsets='{"a": {"0": 5}}').starting.each) == {A0: AtOffset(5)}


@pytest.mark.parametrize(
    ("kind", "more", "message"),
    [
        ("batch", {"subscribee": "x"}, "no option subscribee: did you mean subscribe?"),
        ("batch", {"qqqq": "x"}, "no option qqqq"),
        ("batch", {"path": "x"}, "load.. takes no path"),
        ("batch", {"assign": '{"a": [0]}'}, "subscribe and assign contradict"),
        ("batch", {"startingOffsets": "latest"}, "startingOffsets: a batch that starts at the end"),
        ("batch", {"startingOffsets": '{"a": {"0": -1}}'}, "a batch that starts at the end"),
        ("batch", {"startingOffsets": '{"a": {"0": -3}}'}, "an offset is at least 0"),
        ("batch", {"startingOffsets": '{"a": 7}'}, "startingOffsets has no number per partition for topic a"),
        ("batch", {"startingOffsets": "soon"}, "startingOffsets is 'soon': write JSON"),
        ("batch", {"startingOffsetsByTimestamp": '{"a": {"0": -1}}'}, "a time is in milliseconds"),
        ("batch", {"endingOffsets": "earliest"}, "endingOffsets: a batch that ends at the beginning"),
        ("batch", {"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger: only a stream has triggers"),
        ("stream", {"endingOffsets": "latest"}, "endingOffsets: a stream has no end"),
        ("stream", {"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is '0': write a whole number, at least 1"),
        ("stream", {"maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon': write a duration"),
        ("batch", {"minPartitions": "many"}, "minPartitions is 'many'"),
        ("batch", {"failOnDataLoss": "no"}, "failOnDataLoss is 'no': write true or false"),
        ("batch", {"kafka.isolation.level": "dirty"}, "write read_uncommitted or read_committed"),
        ("batch", {"startingOffsetsByTimestampStrategy": "x"}, "write error or latest"),
        ("batch", {"kafka.bootstrap.servers": "nowhere"}, "'nowhere' is not the address"),
        ("batch", {"kafka.ssl.keystore.location": "x"}, "neither encrypted"),
        ("batch", {"kafka.security.protocol": "SSL"}, "only PLAINTEXT"),
        ("batch", {"tags": ","}, "tags is ',': write one name"),
    ],
)
def test_what_is_wrong_is_one_clear_line(kind: Kind, more: dict[str, str], message: str) -> None:
    with pytest.raises(Failure, match=message) as refused:
        source_options(BASE | more, kind)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "a"}, "kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": "a:1"}, "no topic is named"),
        ({"kafka.bootstrap.servers": "a:1", "subscribePattern": "("}, "not a regular expression"),
        ({"kafka.bootstrap.servers": "a:1", "assign": '{"a": ["x"]}'}, "no list of partitions for topic a"),
        ({"kafka.bootstrap.servers": "a:1", "assign": "{}"}, "write JSON such as"),
    ],
)
def test_a_read_needs_a_broker_and_topics(options: dict[str, str], message: str) -> None:
    with pytest.raises(Failure, match=message):
        source_options(options, "batch")


def test_places_must_name_exactly_the_partitions_that_are_read() -> None:
    starting = read(startingOffsets='{"a": {"0": 23}}').starting
    assert starting.of([A0]) == {A0: AtOffset(23)}
    with pytest.raises(Failure, match="startingOffsets does not name a-1"):
        starting.of([A0, A1])
    with pytest.raises(Failure, match="names a-0, which this query does not read"):
        starting.of([])


def test_a_checkpoint_has_the_form_of_sparks_connector_and_anothers_is_refused() -> None:
    shown = to_json({A1: 5, A0: 3})
    assert shown == {"a": {"0": 3, "1": 5}}
    assert from_json(shown) == {A0: 3, A1: 5}
    with pytest.raises(Failure, match="belongs to another query"):
        from_json({"logOffset": 7})  # type: ignore[dict-item]
