"""What a pipeline gets for one run: Spark, the clock, a reporter, and whether it was asked to stop.

Built by the launcher; read by every pipeline. Invariant: pipelines do not print; all output goes through the reporter,
so that a terminal, a log and a test can each show it in their own way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from headrace.spark.pipelines.checkpoints import Checkpoint
from headrace.spark.pipelines.progress import StreamFacts
from headrace.world.clock import Clock, SystemClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Reporter(Protocol):
    def note(self, text: str) -> None:
        """A one-line message."""
        ...

    def stream(self, query: str, facts: StreamFacts) -> None:
        """The progress of a stream, after each of its batches."""
        ...

    def batch(self, done: int, total: int) -> None:
        """The progress of a job with an end."""
        ...

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Rows to be shown."""
        ...


class SilentReporter:
    """A reporter that discards everything."""

    def note(self, text: str) -> None:
        pass

    def stream(self, query: str, facts: StreamFacts) -> None:
        pass

    def batch(self, done: int, total: int) -> None:
        pass

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        pass


@dataclass(frozen=True)
class Run:
    spark: SparkSession
    reporter: Reporter = field(default_factory=SilentReporter)
    stop_asked: Callable[[], bool] = lambda: False
    clock: Clock = field(default_factory=SystemClock)
    held: Checkpoint | None = None

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint of a stream, which this pipeline owns."""
        assert self.held is not None, "only streams have checkpoints"
        return self.held
