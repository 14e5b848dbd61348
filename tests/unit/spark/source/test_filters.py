"""Filters as bounds: they may let too much through, and never cut off a record that fits."""

from __future__ import annotations

import datetime

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from headrace.model.topic_partition import TopicPartition
from headrace.spark.source.filters import Bounds, bounds_of

OFFSET, PARTITION, TOPIC, TIME = ("offset",), ("partition",), ("topic",), ("timestamp",)


def moment(time_ms: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)


def test_bounds_are_the_narrowest_of_all_filters() -> None:
    bounds = bounds_of([GreaterThan(OFFSET, 3), GreaterThanOrEqual(OFFSET, 2), LessThan(OFFSET, 9), In(OFFSET, (1, 8))])
    assert (bounds.offsets.low, bounds.offsets.end) == (4, 9)
    assert (bounds_of([EqualTo(OFFSET, 5)]).offsets.low, bounds_of([LessThanOrEqual(OFFSET, 5)]).offsets.end) == (5, 6)


def test_partitions_are_admitted_by_topic_and_number() -> None:
    def admitted(*filters: Filter) -> list[str]:
        bounds = bounds_of(filters)
        return [str(place) for topic in "ab" for place in (TopicPartition(topic, 0), TopicPartition(topic, 1))
                if bounds.admit(place)]  # fmt: skip

    assert admitted() == ["a-0", "a-1", "b-0", "b-1"]
    assert admitted(EqualTo(TOPIC, "b"), GreaterThan(PARTITION, 0)) == ["b-1"]
    assert admitted(In(PARTITION, (1, 7)), EqualTo(PARTITION, 1)) == ["a-1", "b-1"]
    assert admitted(EqualTo(PARTITION, 0), EqualTo(PARTITION, 1)) == []


def test_times_are_rounded_to_let_more_through() -> None:
    times = bounds_of([GreaterThan(TIME, moment(1500.7)), LessThanOrEqual(TIME, moment(2500.2))]).times_ms
    assert (times.low, times.end) == (1500, 2501)
    exact = bounds_of([EqualTo(TIME, moment(1500))]).times_ms
    assert (exact.low, exact.end) == (1500, 1501)
    assert bounds_of([GreaterThan(TIME, moment(-1))]).times_ms.low == -1


def test_what_is_not_understood_bounds_nothing() -> None:
    odd = [
        Not(EqualTo(PARTITION, 1)),
        IsNotNull(OFFSET),
        StringStartsWith(TOPIC, "a"),
        EqualTo(("headers", "key"), "offset"),
        EqualTo(OFFSET, "seven"),
        GreaterThan(TIME, datetime.datetime(2026, 1, 1)),
    ]
    assert bounds_of(odd) == Bounds()
