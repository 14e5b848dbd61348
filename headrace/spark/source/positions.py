"""Places in topics: partitions, and where in each of them a read begins or ends.

Pure nouns of the source, shared by its options, its planning and its readers. A `Position` is what a user writes (the
beginning, the end, an offset, a time), `Positions` are the places of all partitions of a read; resolving them into
offsets takes a broker, see broker_logs.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.model.failure import Failure

LATEST_OFFSET, EARLIEST_OFFSET = -1, -2  # as Spark's connector and Kafka write them


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = dict[TopicPartition, int]


@dataclass(frozen=True)
class Earliest:
    """The first record that is still there."""


@dataclass(frozen=True)
class Latest:
    """After the last record."""


@dataclass(frozen=True)
class AtOffset:
    offset: int


@dataclass(frozen=True)
class AtTime:
    """The first record that is as late as this."""

    time_ms: int


Position = Earliest | Latest | AtOffset | AtTime


@dataclass(frozen=True)
class Positions:
    """One place for all partitions, or one for each."""

    option: str  # that said so
    everywhere: Position | None
    each: Mapping[TopicPartition, Position] = field(default_factory=dict)

    def of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """The place in each of these partitions, which are all that the read has."""
        if self.everywhere is not None:
            return dict.fromkeys(partitions, self.everywhere)
        wanted = set(partitions)
        missing, unknown = sorted(wanted - set(self.each)), sorted(set(self.each) - wanted)
        if missing:
            raise Failure(
                f"option {self.option} says nothing of {', '.join(map(str, missing))}: "
                "name every partition of the topics that are read"
            )
        if unknown:
            raise Failure(
                f"option {self.option} names {', '.join(map(str, unknown))}, which the read does not have: "
                "name partitions that exist and are subscribed to"
            )
        return dict(self.each)


def position_of_offset(offset: int) -> Position:
    """-2 is the beginning and -1 the end, as everywhere in Kafka."""
    if offset == EARLIEST_OFFSET:
        return Earliest()
    return Latest() if offset == LATEST_OFFSET else AtOffset(offset)


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Offsets as a stream's checkpoint and its progress show them, in the form of Spark's connector."""
    shown: dict[str, dict[str, int]] = {}
    for place, offset in sorted(offsets.items()):
        shown.setdefault(place.topic, {})[str(place.partition)] = offset
    return shown


def from_json(shown: Mapping[str, Mapping[str, int]]) -> Offsets:
    """What `to_json` made, perhaps long ago and by another query."""
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partitions in shown.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise Failure(
            f"the checkpoint says {shown!r}, which are no offsets of topics: it belongs to another query. "
            "Give this query a checkpointLocation of its own"
        ) from None
