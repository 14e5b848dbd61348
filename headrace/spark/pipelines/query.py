"""A stream of a pipeline, started, and started again where Spark gave it up for want of time.

Made by `start` for every pipeline that streams; followed by watching.py. For a source or sink in Python Spark starts a
Python process and waits ten seconds for it: no longer, and there is no setting. On a busy machine that is too short
to load PySpark. What was done by then is in the checkpoint, so the query goes on from there.

Invariant: a query that fails for another reason, or again and again for this one without a batch between, has failed.
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
        """The query as it runs now."""
        assert self._current is not None, "a query is begun before it is looked at"
        return self._current

    def begin_again(self, error: Exception) -> bool:
        """Whether the query that failed with this error was begun anew."""
        if self.current.recentProgress:
            self._tries = 0
        if _TOO_LATE not in str(error) or self._tries >= _TRIES:
            return False
        self.begin()
        return True


def start(writer: DataStreamWriter, name: str, trigger: str, folder: str) -> Query:
    """Start a query that takes a batch as often as the trigger says, with its checkpoint in a folder."""
    if trigger == AVAILABLE_NOW:
        triggered = writer.trigger(availableNow=True)
    else:
        triggered = writer.trigger(processingTime=spark_span(trigger, "trigger"))
    query = Query(triggered.queryName(name).option("checkpointLocation", folder).start)
    query.begin()
    return query
