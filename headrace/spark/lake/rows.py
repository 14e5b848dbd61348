"""The rows of a lake: their Arrow schema, and the folder that a row belongs to.

Pure, on Arrow columns; used by the writer, the compaction and the readers. Invariant: every file of every lake has
exactly this schema, the columns of the source plus the hour, so that Delta and Iceberg tables can use the files
unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
RECORD_SCHEMA = pa.schema([
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", "UTC")),
    pa.field("timestampType", pa.int32()),
    pa.field("headers", HEADERS),
])  # fmt: skip
LAKE_SCHEMA = RECORD_SCHEMA.append(pa.field("hour", pa.string()))


def folder_of(topic: str, hour: str) -> str:
    """The folder for rows of a topic and an hour (2026-11-16-15, UTC), in Hive's layout, which every engine reads."""
    return f"data/topic={topic}/hour={hour}"


def conform(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the columns, types and order of the source; Spark passes timestamps in the session's time zone."""
    columns = []
    for field in RECORD_SCHEMA:
        column = batch.column(field.name)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def by_topic_and_hour(batch: pa.RecordBatch) -> Iterator[tuple[str, str, pa.RecordBatch]]:
    """Split the batch by folder, keeping the order of rows, with the hour added as a column."""
    hours = pc.floor_temporal(batch.column("timestamp").cast(pa.timestamp("us")), unit="hour")
    topics, names = pc.unique(batch.column("topic")).to_pylist(), pc.unique(hours).to_pylist()
    for topic in topics:
        for hour in names:
            piece = batch
            if len(topics) * len(names) > 1:
                piece = batch.filter(pc.and_(pc.equal(batch.column("topic"), topic), pc.equal(hours, hour)))
            if piece.num_rows:
                name = hour.strftime("%Y-%m-%d-%H")
                yield topic, name, with_hour(piece, name)


def with_hour(batch: pa.RecordBatch, hour: str) -> pa.RecordBatch:
    column = pa.repeat(pa.scalar(hour, pa.string()), batch.num_rows)
    return pa.RecordBatch.from_arrays([*batch.columns, column], schema=LAKE_SCHEMA)


def from_ends_on(batch: pa.RecordBatch, ends: dict[tuple[str, int], int]) -> pa.RecordBatch:
    """The rows that are not in the lake yet."""
    firsts = pa.Table.from_batches([batch]).group_by(["topic", "partition"]).aggregate([("offset", "min")])
    for row in firsts.to_pylist():
        end = ends.get((row["topic"], row["partition"]), 0)
        if row["offset_min"] < end:
            of_partition = pc.and_(
                pc.equal(batch.column("topic"), row["topic"]), pc.equal(batch.column("partition"), row["partition"])
            )
            archived = pc.and_(of_partition, pc.less(batch.column("offset"), end))
            batch = batch.filter(pc.invert(archived))
    return batch
