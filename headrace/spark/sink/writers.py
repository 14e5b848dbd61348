"""The writers that Spark calls for `df.write.format("headrace")` and `df.writeStream.format("headrace")`.

Spark plans each batch in a Python process on the driver, which makes a writer; `write` runs on a copy of it in each
task; `commit` and `abort` run in yet another process on the driver, for streams on a new writer that gets only the
messages of the tasks. So these messages carry query, batch and run, and nothing is kept in memory between the calls.
The work is in task.py and commit.py.

A batch write, also one inside foreachBatch, is a run of its own: it never uses the ids of a query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from headrace.client.blocking import Dial
from headrace.model.failure import Failure
from headrace.spark.sink.commit import WRITE_BATCH, WRITE_SINK, Committer
from headrace.spark.sink.decision_log import DecisionLog
from headrace.spark.sink.names import Stream, TaskAttempt
from headrace.spark.sink.options import SinkOptions, parse_options
from headrace.spark.sink.rows import check_schema
from headrace.spark.sink.task import TaskWriter, Written, open_cluster
from headrace.spark.sink.transactions import Transactions
from headrace.world.clock import SystemClock
from headrace.world.entropy import SystemEntropy
from headrace.world.net import dial

_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"  # local properties that Spark sets in tasks


@dataclass(frozen=True, slots=True)
class TaskMessage(WriterCommitMessage):
    """The commit message of a task."""

    written: Written


def make_writer(options: Mapping[str, str], schema: Any, overwrite: bool) -> WriteSink:
    """For df.write."""
    if overwrite:
        raise Failure("mode('overwrite') would delete the topic, but the sink can only append: use mode('append')")
    parsed = _checked(options, schema)
    if parsed.exactly_once:
        with committing(parsed) as committer:
            committer.finish_writes()
    return WriteSink(parsed, SystemEntropy().uuid().hex)


def make_stream_writer(options: Mapping[str, str], schema: Any, overwrite: bool) -> StreamSink:
    """For df.writeStream. Spark sets `overwrite` for the output mode complete."""
    if overwrite:
        raise Failure("outputMode('complete') would write the whole result in each batch: use 'update' or 'append'")
    return StreamSink(_checked(options, schema), SystemEntropy().uuid().hex)


def _checked(options: Mapping[str, str], schema: Any) -> SinkOptions:
    parsed = parse_options(options)
    check_schema(schema, parsed.topic)
    return parsed


@contextmanager
def committing(options: SinkOptions, dial: Dial = dial) -> Iterator[Committer]:
    """A Committer with its connections, for one call of commit or abort."""
    clock = SystemClock()
    with open_cluster(options, dial) as cluster:
        transactions = Transactions(cluster, clock, options.request_timeout_ms / 1000)
        yield Committer(DecisionLog(cluster, transactions, clock), transactions, options.topic)


class WriteSink(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, run: str) -> None:
        self._options = options
        self._run = run

    @property
    def _stream(self) -> Stream:
        return Stream(self._run, WRITE_SINK)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        context = _task_context()
        attempt = TaskAttempt(self._stream, WRITE_BATCH, context.partitionId(), self._run, context.taskAttemptId())
        return TaskMessage(TaskWriter(self._options, attempt, SystemClock()).write(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        members = [written.member for written in _told(messages) if written.member]
        if members:
            with committing(self._options) as committer:
                committer.commit_write(self._stream, self._run, members)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once:
            with committing(self._options) as committer:
                committer.abort(self._stream, WRITE_BATCH, self._run)


class StreamSink(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, run: str) -> None:
        self._options = options
        self._run = run  # of the planned batch; the writer that commits has another run, which is not used

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        context = _task_context()
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if query is None or batch is None:
            raise Failure(f"Spark did not set query and batch of this task ({_QUERY_ID}, {_BATCH_ID}): use writeStream")
        stream = Stream(query, self._options.sink_name)
        attempt = TaskAttempt(stream, int(batch), context.partitionId(), self._run, context.taskAttemptId())
        return TaskMessage(TaskWriter(self._options, attempt, SystemClock()).write(iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        told = _told(messages)
        if not self._options.exactly_once or not told:
            return
        members = [written.member for written in told if written.member]
        was_decided = any(written.was_decided for written in told)
        with committing(self._options) as committer:
            attempt = told[0].attempt
            committer.commit(attempt.stream, batchId, attempt.run, members, was_decided=was_decided)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        told = _told(messages)
        if self._options.exactly_once and told:  # if no task sent a message, the batch's next run cleans up
            with committing(self._options) as committer:
                committer.abort(told[0].attempt.stream, batchId, told[0].attempt.run)


def _task_context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise Failure("the sink can only write inside a Spark task: use df.write or df.writeStream")
    return context


def _told(messages: list[WriterCommitMessage | None]) -> list[Written]:
    """The messages of the tasks; a failed task has none."""
    return [message.written for message in messages if isinstance(message, TaskMessage)]
