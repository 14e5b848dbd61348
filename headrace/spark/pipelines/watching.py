"""Follows a running pipeline: streams until they end, fail or are stopped; jobs until they end.

Called by pipelines with the queries they have started. Invariant: when `watch` returns or raises, every query has
ended; the first that fails for good stops the others, and its cause is reported in one line.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from headrace.model.failure import Failure
from headrace.spark.pipelines.progress import StreamPace
from headrace.spark.pipelines.query import Query
from headrace.spark.pipelines.run import Run
from headrace.spark.pipelines.spark_errors import plain_error

LOOK_S = 0.3  # how often progress is polled


def watch(queries: Mapping[str, Query], run: Run, each_look: Callable[[], None] | None = None) -> int:
    """Follow the queries to their end; returns how many rows they read."""
    paces = {name: StreamPace() for name in queries}
    rows = dict.fromkeys(queries, 0)

    def report() -> None:
        for name, query in queries.items():
            for progress in query.current.recentProgress:
                facts = paces[name].take(progress, run.clock.monotonic())
                if facts is not None:
                    rows[name] = facts.rows
                    run.reporter.stream(name, facts)
        if each_look is not None:
            each_look()

    try:
        going = list(queries.items())
        while going and not run.stop_asked():
            going = [(name, query) for name, query in going if _goes_on(name, query, run)]
            report()
    finally:
        for query in queries.values():
            if query.current.isActive:
                query.current.stop()
    report()
    return sum(rows.values())


def _goes_on(name: str, query: Query, run: Run) -> bool:
    from pyspark.errors import StreamingQueryException

    try:
        return not query.current.awaitTermination(LOOK_S)  # type: ignore[arg-type]  # it takes fractions, too
    except StreamingQueryException as error:
        if query.begin_again(error):
            run.reporter.note(f"{name}: Spark timed out waiting for a Python process; the query is restarted")
            return True
        raise Failure(f"{name} stopped: {plain_error(error)}") from None


@contextmanager
def job_progress(run: Run) -> Iterator[None]:
    """Report how many tasks of the active stages are done, while the block runs Spark jobs."""
    tracker = run.spark.sparkContext.statusTracker()
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage))]
            total = sum(info.numTasks for info in stages)
            if total:
                run.reporter.batch(sum(info.numCompletedTasks for info in stages), total)

    looker = threading.Thread(target=look, name="headrace-progress", daemon=True)
    looker.start()
    try:
        yield
    finally:
        over.set()
        looker.join()
