"""Resolves the positions in the options to start and end offsets, within what brokers and the archive have.

Called by the batch reader and, for its first batch, by the stream reader. Invariant: the result lies within the logs;
an offset that was asked for and does not exist is reported as data loss, never silently skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.model.failure import Failure
from headrace.model.topic_partition import TopicPartition
from headrace.spark.source import data_loss
from headrace.spark.source.broker_logs import BrokerLogs
from headrace.spark.source.options import SourceOptions
from headrace.spark.source.positions import (
    AtOffset,
    AtTime,
    Earliest,
    Offsets,
    Position,
)

if TYPE_CHECKING:
    from headrace.spark.source.archive_read import Archive


def open_archive(options: SourceOptions) -> Archive | None:
    """A snapshot of the lake that the option `archive` names, if it does."""
    if options.archive is None:
        return None
    from headrace.spark.source import archive_read  # imported only if needed: a task starts faster without

    return archive_read.open_archive(options.archive)


class Edges:
    """The start and end offset of every partition that is read, over archive and log."""

    def __init__(
        self, options: SourceOptions, logs: BrokerLogs, places: list[TopicPartition], archive: Archive | None
    ) -> None:
        self._options = options
        self._logs = logs
        self._archive = archive
        self.earliest = logs.earliest(places)
        self.latest = logs.latest(places)
        for place in places:
            archived = None if archive is None else archive.start(*place)
            if archived is not None:
                self.earliest[place] = min(self.earliest[place], archived)

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset in archive or log whose record has this timestamp or a later one."""
        found: dict[TopicPartition, int | None] = {}
        for place, time_ms in times.items():
            found[place] = None if self._archive is None else self._archive.offset_at(*place, time_ms)
        live = {place: times[place] for place, offset in found.items() if offset is None}
        return found | self._logs.at_times(live)

    def starts(self, places: Mapping[TopicPartition, Position]) -> Offsets:
        """The start offsets of the read."""
        at_times = self.at_times({where: place.time_ms for where, place in places.items() if isinstance(place, AtTime)})
        starts: Offsets = {}
        for where, place in places.items():
            if isinstance(place, AtTime):
                starts[where] = self._start_at_time(where, place, at_times[where])
            elif isinstance(place, AtOffset):
                starts[where] = self._within(where, place.offset)
            else:
                starts[where] = self.earliest[where] if isinstance(place, Earliest) else self.latest[where]
        return starts

    def ends(self, places: Mapping[TopicPartition, Position]) -> Offsets:
        """The end offsets of the read; a time after the last record means the end of the log."""
        at_times = self.at_times({where: place.time_ms for where, place in places.items() if isinstance(place, AtTime)})
        ends: Offsets = {}
        for where, place in places.items():
            if isinstance(place, AtOffset):
                ends[where] = self._not_beyond(where, place.offset)
            else:
                found = at_times.get(where)
                ends[where] = self.latest[where] if found is None else found
        return ends

    def _start_at_time(self, where: TopicPartition, place: AtTime, found: int | None) -> int:
        if found is not None:
            return found
        if not self._options.time_not_found_is_latest:
            raise Failure(
                f"partition {where.partition} of topic {where.topic} has no record at or after {place.time_ms}, which "
                f"option {self._options.starting.option} asks for: choose an earlier time, or set "
                "startingOffsetsByTimestampStrategy to latest"
            )
        return self.latest[where]

    def _within(self, where: TopicPartition, offset: int) -> int:
        if offset < self.earliest[where]:
            lost = data_loss.aged_out(where, offset, self.earliest[where])
            data_loss.report(self._options.fail_on_data_loss, lost)
        return max(self.earliest[where], self._not_beyond(where, offset))

    def _not_beyond(self, where: TopicPartition, offset: int) -> int:
        if offset > self.latest[where]:
            lost = data_loss.went_back(where, offset, self.latest[where])
            data_loss.report(self._options.fail_on_data_loss, lost)
        return min(offset, self.latest[where])
