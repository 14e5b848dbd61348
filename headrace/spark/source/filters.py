"""Turns the filters that Spark pushes down into bounds on topics, partitions, offsets and timestamps.

Pure. Called by the batch reader. A filter of another kind is ignored: Spark applies all filters again, so bounds may
include too much, but must never exclude a matching record. A lower bound on time can be turned into an offset, since
all records before the first one late enough are too early; an upper bound only where timestamps never decrease. Times
are in milliseconds here and may be in microseconds in the filter: both bounds are rounded outwards.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from headrace.model.topic_partition import TopicPartition

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)


@dataclass
class _Interval:
    """The integers from `low` to before `end`; None is unbounded."""

    low: int | None = None
    end: int | None = None

    def at_least(self, low: int) -> None:
        self.low = low if self.low is None else max(self.low, low)

    def before(self, end: int) -> None:
        self.end = end if self.end is None else min(self.end, end)

    def __contains__(self, number: int) -> bool:
        return (self.low is None or number >= self.low) and (self.end is None or number < self.end)


@dataclass
class Bounds:
    """The partitions, offsets and times that can have matching records."""

    topics: frozenset[str] | None = None
    partitions: _Interval = field(default_factory=_Interval)
    partition_set: frozenset[int] | None = None
    offsets: _Interval = field(default_factory=_Interval)
    times_ms: _Interval = field(default_factory=_Interval)

    def admit(self, place: TopicPartition) -> bool:
        """Whether the partition can have matching records."""
        return (
            (self.topics is None or place.topic in self.topics)
            and (self.partition_set is None or place.partition in self.partition_set)
            and place.partition in self.partitions
        )


def bounds_of(filters: Iterable[Filter]) -> Bounds:
    """The bounds implied by all of these filters together."""
    bounds = Bounds()
    for one in filters:
        name = one.attribute[0] if len(getattr(one, "attribute", ())) == 1 else ""  # type: ignore[attr-defined]
        if name == "topic":
            _bound_topics(bounds, one)
        elif name == "partition":
            _bound_partitions(bounds, one)
        elif name == "offset":
            _bound_numbers(bounds.offsets, one)
        elif name == "timestamp":
            _bound_times(bounds.times_ms, one)
    return bounds


def _members(one: Filter, kind: type) -> frozenset[Any] | None:
    """The values allowed by an equality or IN."""
    if isinstance(one, EqualTo | EqualNullSafe) and isinstance(one.value, kind):
        return frozenset({one.value})
    if isinstance(one, In) and all(isinstance(value, kind) for value in one.value):
        return frozenset(one.value)
    return None


def _bound_topics(bounds: Bounds, one: Filter) -> None:
    members = _members(one, str)
    if members is not None:
        bounds.topics = members if bounds.topics is None else bounds.topics & members


def _bound_partitions(bounds: Bounds, one: Filter) -> None:
    members = _members(one, int)
    if members is not None:
        bounds.partition_set = members if bounds.partition_set is None else bounds.partition_set & members
    else:
        _bound_numbers(bounds.partitions, one)


def _bound_numbers(interval: _Interval, one: Filter) -> None:
    members = _members(one, int)
    if members:
        interval.at_least(min(members))
        interval.before(max(members) + 1)
    elif isinstance(one, GreaterThan | GreaterThanOrEqual) and isinstance(one.value, int):
        interval.at_least(one.value + isinstance(one, GreaterThan))
    elif isinstance(one, LessThan | LessThanOrEqual) and isinstance(one.value, int):
        interval.before(one.value + isinstance(one, LessThanOrEqual))


def _bound_times(interval: _Interval, one: Filter) -> None:
    members = _members(one, datetime.datetime)
    if members and all(time.tzinfo for time in members):
        interval.at_least(min(map(_milliseconds, members)))
        interval.before(max(map(_milliseconds, members)) + 1)
        return
    value = getattr(one, "value", None)
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        return  # a time without a time zone cannot be looked up
    if isinstance(one, GreaterThan | GreaterThanOrEqual):
        interval.at_least(_milliseconds(value))
    elif isinstance(one, LessThan | LessThanOrEqual):
        interval.before(_milliseconds(value) + 1)


def _milliseconds(time: datetime.datetime) -> int:
    return (time - _EPOCH) // _MILLISECOND
