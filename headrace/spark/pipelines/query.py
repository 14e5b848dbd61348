"""A streaming query of a pipeline, restarted when Spark timed out waiting for a Python process.

Made by `start` for every pipeline that streams; followed by watching.py. For a Python source or sink Spark starts a
Python process and waits ten seconds for it, without a setting to change that. On a busy machine that is too short to
load PySpark. Finished batches are in the checkpoint, so the query continues from there.

Invariant: a query that fails for another reason, or repeatedly for this one without finishing a batch, has failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.spark.pipelines.configuration import AVAILABLE_NOW, spark_span

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_TOO_LATE = "Python worker failed to connect back"
_TRIES = 6


class Query:
    def __init__(self, begin: Callable[[], StreamingQuery]) -> None:
        self._begin = begin
        self._tries = 0
        self._current: StreamingQuery | None = None

    def begin(self) -> None:
        self._tries += 1
        self._current = self._begin()

    @property
    def current(self) -> StreamingQuery:
        """The running query."""
        assert self._current is not None, "begin() must be called first"
        return self._current

    def begin_again(self, error: Exception) -> bool:
        """Restart the query that failed with this error, if it may be restarted; whether it was."""
        if self.current.recentProgress:
            self._tries = 0
        if _TOO_LATE not in str(error) or self._tries >= _TRIES:
            return False
        self.begin()
        return True


def start(writer: DataStreamWriter, name: str, trigger: str, folder: str) -> Query:
    """Start a query with this trigger, and its checkpoint in this folder."""
    if trigger == AVAILABLE_NOW:
        triggered = writer.trigger(availableNow=True)
    else:
        triggered = writer.trigger(processingTime=spark_span(trigger, "trigger"))
    query = Query(triggered.queryName(name).option("checkpointLocation", folder).start)
    query.begin()
    return query
