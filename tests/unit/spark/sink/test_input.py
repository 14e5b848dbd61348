"""What the sink is given: options and schemas, with one clear line for what does not fit; names; decisions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from headrace.model.failure import Failure
from headrace.spark.sink import decisions
from headrace.spark.sink.decisions import Decision, Member, decision_of, entries_of, forget, streams_in
from headrace.spark.sink.names import Stream, TaskAttempt, check_sink_name, parse_attempt
from headrace.spark.sink.options import SinkOptions, parse_options
from headrace.spark.sink.rows import check_schema
from headrace.spark.sink.writers import make_stream_writer, make_writer

SERVERS = {"kafka.bootstrap.servers": "a:1, b:2"}
VALUE = StructType().add("value", StringType())
HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))

names = st.text("abcXYZ019._-", min_size=1, max_size=12)
counts = st.integers(0, 2**40)
attempts = st.builds(
    TaskAttempt,
    st.builds(Stream, st.uuids().map(str), names),
    counts,
    st.integers(0, 10_000),
    st.uuids().map(lambda each: each.hex),
    counts,
)


def with_column(name: str, kind: DataType) -> StructType:
    return StructType(list(VALUE.fields)).add(name, kind)


def test_options_have_the_names_of_sparks_connector() -> None:
    given = SERVERS | {
        "topic": "orders",
        "sinkName": "audit",
        "kafka.compression.type": "zstd",
        "kafka.batch.size": "1000",
        "kafka.acks": "all",
        "kafka.linger.ms": "5",
        "checkpointLocation": "somewhere",
    }
    assert parse_options(given) == SinkOptions(("a:1", "b:2"), "orders", sink_name="audit", codec=4, batch_bytes=1000)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "kafka.bootstrap.servers is missing"),
        (SERVERS | {"delivery": "twice"}, "delivery is 'twice'"),
        (SERVERS | {"kafka.compression.type": "rar"}, "is 'rar': write one of none, gzip, snappy, lz4, zstd"),
        (SERVERS | {"kafka.batch.size": "big"}, r"kafka\.batch\.size is 'big': write a whole number, at least 1"),
        (SERVERS | {"kafka.acks": "1"}, r"kafka\.acks is '1', but the sink supports only all or -1"),
        (SERVERS | {"kafka.key.serializer": "X"}, "cast the columns instead"),
        (SERVERS | {"kafka.transactional.id": "x"}, "cannot be set"),
        (SERVERS | {"kafka.security.protocol": "SSL"}, r"has no option kafka\.security\.protocol"),
        (SERVERS | {"sinkName": "a/b"}, "sinkName is 'a/b'"),
    ],
)
def test_an_option_that_cannot_be_heeded_is_named(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(Failure, match=complaint):
        parse_options(options)


def test_every_column_that_means_something_fits() -> None:
    schema = (
        StructType()
        .add("Key", BinaryType())
        .add("value", StringType())
        .add("headers", HEADERS)
        .add("topic", StringType())
        .add("partition", IntegerType())
        .add("timestamp", TimestampType())
        .add("tag", ArrayType(StringType()))
        .add("delay_ms", LongType())
        .add("deliver_at", TimestampType())
        .add("offset", LongType())
        .add("timestampType", IntegerType())
    )
    check_schema(schema, "")


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        (StructType().add("key", StringType()), "the DataFrame has no column value, only key"),
        (
            StructType().add("value", LongType()),
            "column value has type bigint, but the sink needs binary or string: cast it",
        ),
        (with_column("headers", ArrayType(StringType())), "column headers has type array of string"),
        (with_column("partition", LongType()), "column partition has type bigint, but the sink needs int"),
        (with_column("colour", StringType()), "does not use column colour"),
        (with_column("Value", StringType()), "the DataFrame has 2 columns value"),
    ],
)
def test_a_schema_that_does_not_fit_is_one_line_that_names_the_column(schema: StructType, complaint: str) -> None:
    with pytest.raises(Failure, match=complaint):
        check_schema(schema, "orders")


def test_a_sink_without_a_topic_and_modes_that_would_delete_are_refused() -> None:
    with pytest.raises(Failure, match="no topic to write to"):
        check_schema(VALUE, "")
    with pytest.raises(Failure, match="can only append"):
        make_writer(SERVERS | {"topic": "orders"}, VALUE, overwrite=True)
    with pytest.raises(Failure, match="'update' or 'append'"):
        make_stream_writer(SERVERS | {"topic": "orders"}, VALUE, overwrite=True)


@given(attempts, attempts)
def test_an_attempt_is_known_by_its_id_and_by_no_other_stream(one: TaskAttempt, other: TaskAttempt) -> None:
    assert check_sink_name(one.stream.sink) == one.stream.sink
    assert parse_attempt(one.stream, one.transactional_id) == one
    longer = other._replace(stream=Stream(one.stream.query, f"{one.stream.sink}-{other.stream.sink}"))
    assert parse_attempt(one.stream, longer.transactional_id) is None
    assert parse_attempt(one.stream, other.transactional_id) in (None, other)


@given(
    attempts,
    st.lists(st.builds(Member, counts, counts, counts, st.integers(0, 2**15)), max_size=9),
    st.integers(0, 3),
    st.booleans(),
)
def test_a_decision_comes_out_of_the_log_as_it_went_in(
    attempt: TaskAttempt, members: list[Member], parts_before: int, done: bool
) -> None:
    usual, decisions.MEMBERS_IN_A_PART = decisions.MEMBERS_IN_A_PART, 2
    try:
        decision = Decision(attempt.stream, attempt.batch, attempt.run, "orders", tuple(members), done, "gone")
        latest: dict[bytes, bytes] = {}
        for number in range(1, parts_before + 1):
            latest[f"{attempt.stream.key}/{number}".encode()] = b"of the decision before"
        for key, value in entries_of(decision, parts_before):
            if value is None:
                latest.pop(key, None)
            else:
                latest[key] = value
        assert decision_of(attempt.stream, latest) == decision
        assert streams_in(latest) == [attempt.stream]
        assert len(latest) == max(1, -(-len(members) // 2))
        assert {key for key, _ in forget(decision_of(attempt.stream, latest))} == set(latest)
    finally:
        decisions.MEMBERS_IN_A_PART = usual


def test_a_decision_covers_its_own_transactions_only() -> None:
    attempt = TaskAttempt(Stream("q", "s"), 4, 1, "0" * 32, 9)
    decision = Decision(attempt.stream, 4, attempt.run, members=(Member(1, 9, 7, 0),), done=False)
    assert decision.covers(attempt)
    assert not decision.covers(attempt._replace(attempt=8))
    assert not decision.covers(attempt._replace(partition=0))
    assert not decision.covers(attempt._replace(run="1" * 32))
    assert not decision.covers(attempt._replace(batch=3))
    assert decision.attempt_of(decision.members[0]) == attempt
