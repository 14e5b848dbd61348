"""A replay plan as a Spark source: a stream whose micro-batches are the plan's steps.

Registered by the replay pipeline. As a stream, a replay continues after a crash at the step where it was, and the sink
writes each step exactly once. Invariant: within a step each partition is one task, which reads in offset order; so
records with the same key keep their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from headrace.spark.lake.rows import RECORD_SCHEMA
from headrace.spark.pipelines.replay_plan import Plan
from headrace.spark.source.archive_read import LakePiece, LivePiece, open_archive, read_lake

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

FORMAT = "headrace-replay"
SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>"
)


class ReplayTask(InputPartition):
    def __init__(self, pieces: list[LakePiece], since_ms: int | None, until_ms: int | None) -> None:
        self.pieces = pieces
        self.since_ms = since_ms
        self.until_ms = until_ms


class ReplaySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        return ReplayReader(msgspec.json.decode(self.options["plan"], type=Plan))


class ReplayReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"step": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(1)  # one step per batch; the value is not used, only that there is a limit

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Nothing to do: a plan has a fixed end."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        last = self._plan.steps if self._plan.ranges else 0
        return {"step": last if isinstance(limit, ReadAllAvailable) else min(start["step"] + 1, last)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        archive = open_archive(self._plan.lake)
        tasks: list[InputPartition] = []
        for part in self._plan.slices(start["step"], end["step"]):
            pieces = archive.pieces(part.topic, part.partition, part.start, part.end)
            assert not any(isinstance(piece, LivePiece) for piece in pieces), "a lake never loses what it had"
            of_lake = [piece for piece in pieces if isinstance(piece, LakePiece)]
            tasks.append(ReplayTask(of_lake, self._plan.since_ms, self._plan.until_ms))
        return tasks

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        # Spark calls with an empty partition when a batch has none.
        if not isinstance(partition, ReplayTask):
            return
        for piece in partition.pieces:
            for batch in read_lake(piece, RECORD_SCHEMA.names):
                yield within(batch, partition.since_ms, partition.until_ms)


def within(batch: pa.RecordBatch, since_ms: int | None, until_ms: int | None) -> pa.RecordBatch:
    """The rows with timestamps from `since_ms` to before `until_ms`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for moment_ms, keeps in ((since_ms, pc.greater_equal), (until_ms, pc.less)):
        if moment_ms is not None:
            batch = batch.filter(keeps(pc.cast(batch.column("timestamp"), pa.int64()), moment_ms * 1000))
    return batch
