"""Streams are followed to their end; one that Spark gave up for want of time goes on, any other failure is the end."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from headrace.model.failure import Failure
from headrace.spark.pipelines.query import Query
from headrace.spark.pipelines.run import Run, SilentReporter
from headrace.spark.pipelines.watching import watch

TOO_LATE = "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"


class Stream:
    """A query of Spark's that ends at once, well or with an error, after so many batches."""

    def __init__(self, error: str = "", batches: int = 0) -> None:
        self._error = error
        self.isActive = False
        self.recentProgress = [
            {"timestamp": f"{error}{number}", "batchId": number, "numInputRows": 5} for number in range(batches)
        ]

    def awaitTermination(self, _timeout: float) -> bool:
        if self._error:
            raise StreamingQueryException(self._error)
        return True


class Notes(SilentReporter):
    def __init__(self) -> None:
        self.taken: list[str] = []

    def note(self, text: str) -> None:
        self.taken.append(text)


def follow(*streams: Stream) -> tuple[int, list[str]]:
    """One query that Spark runs as these streams, one after the other."""
    waiting: list[Any] = list(streams)
    query = Query(lambda: waiting.pop(0))
    query.begin()
    notes, spark = Notes(), None
    return watch({"logs": query}, Run(spark, notes)), notes.taken  # type: ignore[arg-type]


def test_a_query_that_spark_gave_up_for_want_of_time_is_started_again() -> None:
    rows, notes = follow(Stream(TOO_LATE), Stream(TOO_LATE), Stream(batches=3))
    assert rows == 15
    assert notes == ["logs: Spark timed out waiting for a Python process; the query is restarted"] * 2


def test_a_query_that_never_gets_its_process_fails_in_the_end() -> None:
    with pytest.raises(Failure, match=r"logs stopped: .*failed to connect back"):
        follow(*[Stream(TOO_LATE) for _ in range(6)])


def test_batches_between_two_such_failures_count_as_a_new_beginning() -> None:
    rows, _ = follow(*[Stream(TOO_LATE, batches=1) for _ in range(9)], Stream())
    assert rows == 5, "the same report is taken once"


def test_any_other_failure_is_the_end() -> None:
    with pytest.raises(Failure, match="logs stopped: the disk is full"):
        follow(Stream("java.io.IOException: the disk is full"))
