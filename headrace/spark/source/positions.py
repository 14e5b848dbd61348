"""Positions in partitions: where a read begins or ends.

Pure types of the source, shared by its options, planning and readers. A `Position` is what a user writes (the
beginning, the end, an offset, a time); `Positions` are those of all partitions of a read. starting.py resolves them to
offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.model.failure import Failure
from headrace.model.topic_partition import TopicPartition

LATEST_OFFSET, EARLIEST_OFFSET = -1, -2  # as Spark's connector and Kafka write them


Offsets = dict[TopicPartition, int]


@dataclass(frozen=True)
class Earliest:
    """The first record that still exists."""


@dataclass(frozen=True)
class Latest:
    """After the last record."""


@dataclass(frozen=True)
class AtOffset:
    offset: int


@dataclass(frozen=True)
class AtTime:
    """The first record with this timestamp or a later one."""

    time_ms: int


Position = Earliest | Latest | AtOffset | AtTime


@dataclass(frozen=True)
class Positions:
    """One position for all partitions, or one for each."""

    option: str  # the option that it comes from
    everywhere: Position | None
    each: Mapping[TopicPartition, Position] = field(default_factory=dict)

    def of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """The position in each of these partitions, which are all partitions of the read."""
        if self.everywhere is not None:
            return dict.fromkeys(partitions, self.everywhere)
        wanted = set(partitions)
        missing, unknown = sorted(wanted - set(self.each)), sorted(set(self.each) - wanted)
        if missing:
            raise Failure(
                f"option {self.option} does not name {', '.join(map(str, missing))}: "
                "name every partition of the topics that are read"
            )
        if unknown:
            raise Failure(
                f"option {self.option} names {', '.join(map(str, unknown))}, which this query does not read: "
                "name partitions that exist and are subscribed to"
            )
        return dict(self.each)


def position_of_offset(offset: int) -> Position:
    """-2 is the beginning and -1 the end, as in Kafka."""
    if offset == EARLIEST_OFFSET:
        return Earliest()
    return Latest() if offset == LATEST_OFFSET else AtOffset(offset)


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Offsets in the format of Spark's connector, for a stream's checkpoint and progress."""
    shown: dict[str, dict[str, int]] = {}
    for place, offset in sorted(offsets.items()):
        shown.setdefault(place.topic, {})[str(place.partition)] = offset
    return shown


def from_json(shown: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The reverse of `to_json`; a checkpoint of another query raises a Failure."""
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partitions in shown.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise Failure(
            f"the checkpoint has {shown!r}, which are not offsets of topics: it belongs to another query. "
            "Give this query a checkpointLocation of its own"
        ) from None
