"""The stream reader: spark.readStream.format("headrace").

The driver has one reader per query, in its own Python process. Between micro-batches Spark asks it for the latest
offsets, for the tasks of a batch, and to commit. In tasks only `read` is called, on a copy that has only the options.
Offsets in the checkpoint have the format of Spark's Kafka connector: {"orders": {"0": 23, "1": 45}}.

Invariants: the end of a batch is never before its start; partitions that appear later are read from their beginning; a
partition that is deleted before it was read to its end, or that now ends before the query's offset, is data loss.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from headrace.client.blocking import ConnectionLost
from headrace.model.topic_partition import TopicPartition
from headrace.spark.source import data_loss
from headrace.spark.source.batch import live_range, pieces_of
from headrace.spark.source.broker_logs import BrokerLogs
from headrace.spark.source.options import SourceOptions
from headrace.spark.source.plan import limited, packed, ranges_between, record_count, split
from headrace.spark.source.positions import Offsets, from_json, to_json
from headrace.spark.source.starting import Edges, open_archive
from headrace.spark.source.task import ReadTask, read_task
from headrace.wire.errors import KafkaError
from headrace.world.clock import SystemClock

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from headrace.spark.source.archive_read import Archive

_log = logging.getLogger(__name__)

Json = dict[str, dict[str, int]]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._logs: BrokerLogs | None = None
        self._archive: Archive | None = None
        self._latest: Offsets = {}  # the end offsets when they were last asked for
        self._target: Offsets | None = None  # with Trigger.AvailableNow: where the query ends
        self._told: Offsets | None = None  # the offsets last committed in the group
        self._last_batch_at: float | None = None

    # --- in tasks ---------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._options, self._schema, partition)

    # --- offsets ------------------------------------------------------------------------------------------------------

    def initialOffset(self) -> Json:  # noqa: N802 (Spark's name)
        logs = self._open()
        places = logs.partitions()
        edges = Edges(self._options, logs, places, self._archive)
        return to_json(edges.starts(self._options.starting.of(places)))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        if self._options.max_per_trigger is not None:
            return ReadMaxRows(self._options.max_per_trigger)
        if self._options.min_per_trigger is not None:
            return ReadMinRows(self._options.min_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        logs = self._open()
        self._target = logs.latest(logs.partitions(must_exist=False))

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802 (Spark's name)
        begun = from_json(start)
        end = self._reachable(begun)
        self._tell_group(begun)
        if isinstance(limit, ReadAllAvailable):
            reached = end
        elif self._too_little(begun, end):
            return start
        else:
            reached = limited(begun, end, limit.max_rows) if isinstance(limit, ReadMaxRows) else end
        if reached != begun:
            self._last_batch_at = SystemClock().monotonic()
        return to_json(reached)

    def reportLatestOffset(self) -> Json | None:  # noqa: N802 (Spark's name)
        return to_json(self._latest) or None

    def _reachable(self, begun: Offsets) -> Offsets:
        """The end offset of every existing partition, but never before the query's current offset."""
        logs = self._open()
        places = logs.partitions(must_exist=False)
        seen, self._latest = self._latest, logs.latest(places, at_least=begun)
        for place, offset in begun.items():
            if place not in self._latest:
                self._report_gone(place, offset, seen)
            elif self._latest[place] < offset:
                lost = data_loss.went_back(place, offset, self._latest[place])
                data_loss.report(self._options.fail_on_data_loss, lost)
        if self._target is None:
            return dict(self._latest)
        bounded = {place: min(self._target[place], end) for place, end in self._latest.items() if place in self._target}
        return {place: max(end, begun.get(place, 0)) for place, end in bounded.items()} | {
            place: offset for place, offset in begun.items() if place in self._latest and place not in bounded
        }

    def _report_gone(self, place: TopicPartition, offset: int, seen: Offsets) -> None:
        """A partition disappeared. If its topic still exists and it was read to its last known end, nothing is lost."""
        shrank = self._open().exists(place.topic) and seen.get(place) == offset
        if shrank:
            _log.info("partition %s was deleted; it had been read to its end at offset %s", place, offset)
        else:
            data_loss.report(self._options.fail_on_data_loss, data_loss.gone(place, offset))

    def _too_little(self, begun: Offsets, end: Offsets) -> bool:
        """Whether to wait for more: fewer records than minOffsetsPerTrigger, and maxTriggerDelay has not passed."""
        least = self._options.min_per_trigger
        if least is None or self._target is not None or self._last_batch_at is None:
            return False
        waited_ms = (SystemClock().monotonic() - self._last_batch_at) * 1000
        return record_count(begun, end) < least and waited_ms < self._options.max_trigger_delay_ms

    # --- tasks and commits --------------------------------------------------------------------------------------------

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        logs = self._open()
        begun, reached = from_json(start), from_json(end)
        begun |= self._beginnings([place for place in reached if place not in begun])
        ranges = ranges_between(begun, reached)
        if not ranges:
            return []
        if not logs.exists(
            ranges[0].place.topic
        ):  # after a restart Spark replans the last batch before it asks for offsets
            logs.partitions(must_exist=False)
        if self._archive is not None:
            return [ReadTask((piece,)) for piece in pieces_of(ranges, logs, self._archive, self._options)]
        parts = split(ranges, self._options.min_partitions, self._options.max_records_per_partition)
        tasks = packed(parts, self._options.min_partitions)
        return [ReadTask(tuple(live_range(part, logs) for part in task)) for task in tasks]

    def stop(self) -> None:
        if self._logs is not None:
            self._logs.close()
            self._logs = None

    def _tell_group(self, done: Offsets) -> None:
        """Commit the query's offsets in the group: when Spark asks for the next batch, all earlier ones are done.

        Spark's own `commit` comes one batch late, and never for the last one before a pause.
        """
        group_id = self._options.group_id
        if group_id is None or done == self._told:
            return
        try:
            self._open().commit(group_id, done)
            self._told = done
        except (ConnectionLost, KafkaError) as error:  # the checkpoint has the offsets; the next commit includes these
            _log.warning(
                "the offsets of the query were not committed in group %s, the next batch tries again: %s",
                group_id,
                error,
            )

    def _beginnings(self, fresh: list[TopicPartition]) -> Offsets:
        """Start offsets of partitions new to the query; one that does not start at 0 has lost records."""
        if not fresh:
            return {}
        earliest = Edges(self._options, self._open(), fresh, self._archive).earliest
        for place, offset in earliest.items():
            if offset > 0:
                data_loss.report(self._options.fail_on_data_loss, data_loss.aged_out(place, 0, offset))
        return earliest

    def _open(self) -> BrokerLogs:
        """The driver's connections, made on first use: a reader may also be made only to be sent to tasks."""
        if self._logs is None:
            self._logs = BrokerLogs(self._options)
            self._archive = open_archive(self._options)
        return self._logs
