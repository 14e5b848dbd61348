"""The sink without Spark: tasks and drivers as plain calls, on a real broker, with a crash wherever a test wants one.

A driver here does what Spark does: it runs the tasks of a batch, then commits; after a crash it runs the batch again.
HEADRACE_BOOTSTRAP runs all of it on another broker, such as Apache Kafka, but for what needs a headrace broker in hand.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.client.metadata import Cluster
from headrace.spark.sink.names import Stream, TaskAttempt
from headrace.spark.sink.options import SinkOptions
from headrace.spark.sink.task import TaskWriter, Written
from headrace.spark.sink.writers import committing
from headrace.testing.local_broker import LocalBroker
from headrace.wire import batches, records
from headrace.wire.end_markers import read_marker
from headrace.wire.messages import Message
from headrace.world.clock import SystemClock
from headrace.world.net import Buffer, Line, dial

FETCH, CREATE_TOPICS = 1, 19
MARKERS_S = 30.0


ELSEWHERE = os.environ.get("HEADRACE_BOOTSTRAP")
needs_headrace = pytest.mark.skipif(ELSEWHERE is not None, reason="stops the broker, or pushes its clock")


@dataclass(frozen=True)
class BrokerElsewhere:
    """A broker that others started."""

    bootstrap: str


@contextmanager
def any_broker(folder: Path) -> Iterator[LocalBroker | BrokerElsewhere]:
    if ELSEWHERE is not None:
        yield BrokerElsewhere(ELSEWHERE)
        return
    with LocalBroker(folder) as running:
        yield running


class Crash(BaseException):
    """The process is killed here: nothing catches it."""


class CrashingNet:
    """Dials real connections, and kills the process at its nth request, before it leaves or after; or, if `breaks`, the
    connection only, and the process lives on."""

    def __init__(self, at: int = -1, *, after: bool = False, breaks: bool = False) -> None:
        self.requests = 0
        self._at = at
        self._after = after
        self._error: type[BaseException] = ConnectionResetError if breaks else Crash

    def dial(self, host: str, port: int, timeout_s: float) -> Line:
        return _CrashingLine(self, dial(host, port, timeout_s))

    def send(self, line: Line, buffers: Sequence[Buffer]) -> None:
        turn = self.requests
        self.requests += 1
        if turn == self._at and not self._after:
            raise self._error(f"before request {turn}")
        line.send(buffers)
        if turn == self._at:
            line.receive_into(memoryview(bytearray(4)))  # the broker has done it
            raise self._error(f"after request {turn}")


class _CrashingLine:
    def __init__(self, net: CrashingNet, line: Line) -> None:
        self._net = net
        self._line = line
        self.receive_into = line.receive_into
        self.set_timeout = line.set_timeout
        self.close = line.close

    def send(self, buffers: Sequence[Buffer]) -> None:
        self._net.send(self._line, buffers)


def arrow(values: Sequence[str], **columns: Sequence[object]) -> pa.RecordBatch:
    made = {"value": pa.array([value.encode() for value in values], pa.binary())}
    return pa.record_batch(made | {name: pa.array(cells) for name, cells in columns.items()})


@dataclass
class Driver:
    """One life of a streaming query's driver. Drivers of one query share its stream, as by a checkpoint."""

    options: SinkOptions
    stream: Stream = field(default_factory=lambda: Stream(str(uuid.uuid4()), "sink"))
    attempts: Iterator[int] = field(default_factory=itertools.count)

    def again(self) -> Driver:
        """The driver of the same query after a restart."""
        return Driver(self.options, self.stream)

    def task(
        self, batch: int, partition: int, run: str, rows: Sequence[str], net: CrashingNet | None = None
    ) -> Written:
        return self.write(batch, partition, run, [arrow(rows)] if rows else [], net)

    def write(
        self, batch: int, partition: int, run: str, found: Sequence[pa.RecordBatch], net: CrashingNet | None = None
    ) -> Written:
        attempt = TaskAttempt(self.stream, batch, partition, run, next(self.attempts))
        return TaskWriter(self.options, attempt, SystemClock(), (net or CrashingNet()).dial).write(iter(found))

    def tasks(self, batch: int, shares: Sequence[Sequence[str]]) -> list[Written]:
        run = uuid.uuid4().hex
        return [self.task(batch, partition, run, rows) for partition, rows in enumerate(shares)]

    def commit(self, told: Sequence[Written], net: CrashingNet | None = None) -> None:
        (attempt, *_) = (written.attempt for written in told)
        members = [written.member for written in told if written.member]
        was_decided = any(written.was_decided for written in told)
        with committing(self.options, (net or CrashingNet()).dial) as committer:
            committer.commit(attempt.stream, attempt.batch, attempt.run, members, was_decided=was_decided)

    def abort(self, told: Sequence[Written], net: CrashingNet | None = None) -> None:
        (attempt, *_) = (written.attempt for written in told)
        with committing(self.options, (net or CrashingNet()).dial) as committer:
            committer.abort(attempt.stream, attempt.batch, attempt.run)

    def run(self, batch: int, shares: Sequence[Sequence[str]], net: CrashingNet | None = None) -> None:
        self.commit(self.tasks(batch, shares), net)


def sink_options(bootstrap: str, topic: str, **changes: object) -> SinkOptions:
    return replace(SinkOptions((bootstrap,), topic), **changes)  # type: ignore[arg-type]


def create_topic(bootstrap: str, name: str, partitions: int = 2, **settings: str) -> None:
    configs = [Message(name=key.replace("_", "."), value=value) for key, value in settings.items()]
    topic = Message(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
    with Cluster([bootstrap], "test") as cluster:
        answer = cluster.call(CREATE_TOPICS, Message(topics=[topic], timeout_ms=30_000))
        assert answer.topics[0].error_code == 0


def end_offsets(bootstrap: str, topic: str) -> list[int]:
    """Where each partition ends, whoever wrote there."""
    with Cluster([bootstrap], "test") as cluster:
        partitions = cluster.topics([topic])[topic].partitions
        return [fetched(cluster, topic, part.index, 0, 1).high_watermark for part in partitions]


def committed(bootstrap: str, topic: str, *, open_ones: bool = False) -> list[str]:
    """The values that count, sorted. No transaction may stay open, unless that is allowed; markers may take a while."""
    clock = SystemClock()
    deadline_s = clock.monotonic() + MARKERS_S
    with Cluster([bootstrap], "test") as cluster:
        while True:
            found = [_read(cluster, topic, part.index) for part in cluster.topics([topic])[topic].partitions]
            still_open = [producer_id for _, unended in found for producer_id in unended]
            if open_ones or not still_open:
                return sorted(value for values, _ in found for value in values)
            assert clock.monotonic() < deadline_s, f"{topic} has open transactions of producers {still_open}"
            clock.pause(0.05)


def _read(cluster: Cluster, topic: str, partition: int) -> tuple[list[str], dict[int, list[str]]]:
    """The values of a partition that count, and by producer those whose transaction is open."""
    found: list[str] = []
    unended: dict[int, list[str]] = {}
    at = 0
    while True:
        part = fetched(cluster, topic, partition, at, 1 << 24)
        for place, header in batches.walk(part.records or b""):
            at = header.next_offset
            if header.is_control:
                marker = read_marker(part.records, place)
                ended = unended.pop(header.producer_id, [])
                found += ended if marker is not None and marker.commit else []
            else:
                values = [(record.value or b"").decode() for record in records.decode(part.records, place)]
                home = unended.setdefault(header.producer_id, []) if header.is_transactional else found
                home += values
        if at >= part.high_watermark:
            return found, unended


def fetched(cluster: Cluster, topic: str, partition: int, offset: int, max_bytes: int) -> Message:
    asked = Message(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    body = Message(min_bytes=0, max_bytes=max_bytes, topics=[Message(topic=topic, partitions=[asked])])
    found: Message = cluster.call_leader(topic, partition, FETCH, body, version=11).responses[0].partitions[0]
    assert found.error_code == 0
    return found
