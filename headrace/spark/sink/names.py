"""Transactional ids of the sink: one for each attempt of a task, with all that identifies it.

    <query>-<sink>-<batch>-<partition>-<run>-<task attempt>

The query is the id of the streaming query; a batch write has an id of its own. A run is one try of one batch, planned
on the driver; it is part of the id because Spark counts task attempts from zero in each application, and an attempt of
a new driver must never be able to abort a decided transaction of an old one. So no id is ever used by two attempts.
Pure; used by tasks, and by the driver, which finds orphans by their prefix.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from headrace.model.failure import Failure

_SINK_NAME = re.compile(r"[A-Za-z0-9._-]{1,80}")
_REST = re.compile(r"(\d+)-(\d+)-([0-9a-f]{32})-(\d+)")


class Stream(NamedTuple):
    """A sink of a streaming query. A batch write is a stream of one batch."""

    query: str
    sink: str

    @property
    def key(self) -> str:
        """The key of its decisions, and the suffix of the transactional id that they are written with."""
        return f"{self.query}/{self.sink}"

    @property
    def prefix(self) -> str:
        """The common prefix of the transactional ids of its tasks."""
        return f"{self.query}-{self.sink}-"

    def __str__(self) -> str:
        return f"query {self.query}, sink {self.sink}"


class TaskAttempt(NamedTuple):
    stream: Stream
    batch: int
    partition: int
    run: str
    attempt: int

    @property
    def transactional_id(self) -> str:
        return f"{self.stream.prefix}{self.batch}-{self.partition}-{self.run}-{self.attempt}"


def check_sink_name(name: str) -> str:
    if not _SINK_NAME.fullmatch(name):
        raise Failure(f"sinkName is {name!r}: use up to 80 letters, digits, dots, dashes and underscores")
    return name


def parse_attempt(stream: Stream, transactional_id: str) -> TaskAttempt | None:
    """The attempt of this stream with this transactional id; None if the id is not of this stream."""
    if not transactional_id.startswith(stream.prefix):
        return None
    found = _REST.fullmatch(transactional_id, len(stream.prefix))
    if found is None:
        return None
    batch, partition, run, attempt = found.groups()
    return TaskAttempt(stream, int(batch), int(partition), run, int(attempt))
