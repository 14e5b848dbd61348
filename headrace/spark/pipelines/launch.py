"""Runs a pipeline: starts and stops Spark, the metrics endpoint and the status file.

Called by the command line, and by tests with their own session. Invariant: any exception of Spark is raised as one
Failure; a session that was started here is stopped here.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from headrace.model.failure import Failure
from headrace.spark.pipelines.catalogue import Pipeline, pipeline
from headrace.spark.pipelines.checkpoints import Checkpoint, Status, open_checkpoint
from headrace.spark.pipelines.configuration import Configuration
from headrace.spark.pipelines.java import check_java
from headrace.spark.pipelines.metrics import PipelineMetrics
from headrace.spark.pipelines.progress import StreamFacts
from headrace.spark.pipelines.run import Reporter, Run, SilentReporter
from headrace.spark.pipelines.spark_errors import plain_error
from headrace.spark.pipelines.topics import check_topics
from headrace.world.clock import Clock, SystemClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Reporters:
    """Forwards to several reporters."""

    def __init__(self, several: Sequence[Reporter]) -> None:
        self._voices = several

    def note(self, text: str) -> None:
        for one in self._voices:
            one.note(text)

    def stream(self, query: str, facts: StreamFacts) -> None:
        for one in self._voices:
            one.stream(query, facts)

    def batch(self, done: int, total: int) -> None:
        for one in self._voices:
            one.batch(done, total)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        for one in self._voices:
            one.table(columns, rows)


class StatusKeeper:
    """A reporter that updates the status file of a checkpoint."""

    def __init__(self, checkpoint: Checkpoint, config: Configuration, clock: Clock) -> None:
        self._checkpoint = checkpoint
        self._config = config
        self._clock = clock
        self._facts: dict[str, StreamFacts] = {}

    def note(self, text: str) -> None:
        """Notes are not part of the status."""

    def batch(self, done: int, total: int) -> None:
        """Streams only."""

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Results are not part of the status."""

    def stream(self, query: str, facts: StreamFacts) -> None:
        self._facts[query] = facts
        self.write("running")

    def write(self, state: str, error: str = "") -> None:
        facts = self._facts.values()
        lags = [fact.lag for fact in facts if fact.lag is not None]
        self._checkpoint.write_status(
            Status(
                pipeline=self._config.pipeline,
                name=self._config.title(),
                state=state,  # type: ignore[arg-type]
                at_ms=self._clock.now_ms(),
                rows=sum(fact.rows for fact in facts),
                rows_per_s=sum(fact.rows_per_s for fact in facts),
                lag=max(lags) if lags else None,
                batch=max((fact.batch for fact in facts), default=-1),
                error=error,
            )
        )


def launch(
    config: Configuration,
    *,
    master: str | None = None,
    reporter: Reporter | None = None,
    stop_asked: Callable[[], bool] = lambda: False,
    spark: SparkSession | None = None,
) -> dict[str, object]:
    """Run a pipeline to its end; returns its facts."""
    clock = SystemClock()
    made = pipeline(config.pipeline, config.title())
    several: list[Reporter] = [reporter or SilentReporter()]
    closing: list[Callable[[], None]] = []
    checkpoint: Checkpoint | None = None
    keeper: StatusKeeper | None = None
    check_topics(made.topics(config))
    if config.checkpoint:
        checkpoint = open_checkpoint(config.checkpoint)
        checkpoint.claim({"pipeline": config.pipeline, **made.shape(config)})
        keeper = StatusKeeper(checkpoint, config, clock)
        several.append(keeper)
    reporters = Reporters(several)
    try:
        if config.metrics is not None:
            metrics = PipelineMetrics(config.pipeline, config.title())
            port, close = metrics.serve(config.metrics)
            closing.append(close)
            several.append(metrics)
            reporters.note(f"metrics at http://{config.metrics.host}:{port}/metrics")
        if spark is None:
            spark = start_spark(config, master)
            closing.append(spark.stop)
        facts = _guarded(made, config, Run(spark, reporters, stop_asked, clock, checkpoint))
        if keeper is not None:
            keeper.write("stopped" if stop_asked() else "finished")
        return facts
    except Failure as failure:
        if keeper is not None:
            keeper.write("failed", str(failure))
        raise
    finally:
        for close in reversed(closing):
            close()


def _guarded(made: Pipeline, config: Configuration, run: Run) -> dict[str, object]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from headrace.spark.data_source import HeadraceDataSource

    try:
        # Spark would find it by its name too, but in a new process, which may time out on a busy machine.
        run.spark.dataSource.register(HeadraceDataSource)
        # As a sink it is found only through the session that is active in this thread, which this call activates.
        run.spark.createDataFrame([(1,)], "one int")
        return made.run(config, run)
    except (PySparkException, Py4JError) as error:
        raise Failure(f"{config.title()}: {plain_error(error)}") from error


def start_spark(config: Configuration, master: str | None) -> SparkSession:
    """A session on the named master; under spark-submit on the submitted one; else on the local machine."""
    check_java()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    builder = SparkSession.builder.appName(config.title())
    if master is not None or not submitted:
        builder = builder.master(master or "local[*]")
    if not submitted and (master or "local").startswith("local"):
        # Spark would use the first python3 on the PATH, in which headrace may not be installed.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name, value in {**quiet_settings(submitted), **config.spark}.items():
        builder = builder.config(name, value)
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        session = builder.getOrCreate()
    except (PySparkException, RuntimeError) as error:
        raise Failure(f"Spark did not start: {plain_error(error)}") from error
    if threading.current_thread() is threading.main_thread():
        # Spark installs its own handler, which would break the clean stop on Ctrl-C.
        signal.signal(signal.SIGINT, on_interrupt)
    session.sparkContext.setLogLevel("ERROR")
    return session


def quiet_settings(submitted: bool) -> dict[str, str]:
    """Settings for a single machine and quiet output; a cluster has its own settings."""
    settings = {"spark.sql.session.timeZone": "UTC"}
    if not submitted:
        log_settings = files("headrace.spark.pipelines") / "log4j2.properties"
        settings |= {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{log_settings}",
        }
    return settings
